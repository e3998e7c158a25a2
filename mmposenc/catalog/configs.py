"""Finds the config that a name ``package::name`` stands for.

mmengine asks for distributions that it knows by heart. It does not find ``mmseg::...`` in the
forks, whose distribution is called otherwise, and its ``get_config`` then has pip install another
mmseg over the one that is there. Here Python is asked where it finds the package.
"""
from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from ..terminal.messages import suggestion_text
from . import papers

_WORD = re.compile(r'[^-_/]+')


def package_folder(package: str) -> Path:
    """The folder of an installed package.

    Raises:
        FileNotFoundError: there is none, with what to install.
    """
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.origin:
        from ..dependencies import how_to_get  # Not needed where the package is found.
        raise FileNotFoundError(f'there is no package {package!r}{how_to_get(package)}')
    return Path(spec.origin).parent


def find_config(name: str) -> Path:
    """The file of a config.

    Args:
        name: ``mmdet::retinanet/retinanet_r50_fpn_1x_coco.py``: a package that Python finds, and a
            file in its .mim/configs, or in configs/ next to it (a checkout). Of this project also
            ``paper::cpvt/table6/3``, a row of a paper's table, and what stands in
            configs/models.yaml. Without ``.py`` it is a short name, see
            :func:`_config_of_short_name`.

    Raises:
        FileNotFoundError: there is no such package or config, with what comes close.
    """
    package, _, relative = name.partition('::')
    if package == 'paper':
        return papers.config_of_model(str(papers.row(relative).model))
    try:
        roots = papers.config_roots(package_folder(package))
    except FileNotFoundError as error:
        raise FileNotFoundError(f'no config {name!r}: {error}') from None
    for root in roots:
        if (root / relative).is_file():
            return root / relative
    changed = papers.changed_config_or_none(relative) if package == 'mmposenc' else None
    if changed is not None:
        return changed
    known = [str(file.relative_to(root)) for root in roots for file in root.rglob('*.py')]
    if not relative.endswith('.py') and (short := _config_of_short_name(relative, known)):
        return next(root / short for root in roots if (root / short).is_file())
    known += papers.names_without_file() if package == 'mmposenc' else []
    names = {f'{package}::{each}' for each in known}
    raise FileNotFoundError(f'no config {name!r}{suggestion_text(name, names)}')


def _config_of_short_name(short: str, known: list[str]) -> str | None:
    """The config of a short name: ``retinanet-pvt-peg-trees`` is the one whose file name has these
    words in this order and the fewest others. None if there is none, or several have as few."""
    wanted = _WORD.findall(short)
    matching: dict[int, set[str]] = {}
    for name in known:
        if name.startswith('_base_'):
            continue
        words = _WORD.findall(Path(name).stem)
        rest = iter(words)
        if all(word in rest for word in wanted):
            matching.setdefault(len(words), set()).add(name)
    shortest = matching[min(matching)] if matching and wanted else set()
    return shortest.pop() if len(shortest) == 1 else None
