"""Options of the command line, put into a config."""
from __future__ import annotations

from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS as ROOT

from ..command_line import suggest
from ..encodings import RelativeEncoding, TokenEncoding
from ..registry import MODELS
from .arguments import accepted_arguments
from .config import LIVE_KEYS

#: Sections of encodings, which a config need not have: where there is none, the first option makes
#: it, and the class that it is an argument of refuses it if it takes none.
ENCODINGS = ('pos_encoding', 'rel_pos_encoding', 'encoder_pos', 'key_pos')


def override(cfg: Config, options: dict[str, Any] | None) -> None:
    """Merges ``--cfg-options`` into a config, and refuses an option that would do nothing.

    An encoding is switched on, off or to another by its ``type`` alone: a section for it is made
    where there is none, arguments that the new class does not take are left out, and so are the
    ``positions`` of one that is switched off. What is left out is printed.

    Args:
        cfg: changed in place.
        options: dotted key to value, as mmengine's DictAction gives them.

    Raises:
        ValueError: a key under a name the config does not have, or a variable of the config file
            that was substituted when the file was read. A new key of a dict that has a ``type``
            passes: it is an argument, and the class refuses one that it does not know.
    """
    options = dict(options or {})
    for key in options:
        _check_key(cfg, key)
    for key, value in options.items():
        _open_sections(cfg, key)
        for line in _leave_out(cfg, key, value, set(options)):
            print(f'--cfg-options {key}: {line}')
    cfg.merge_from_dict(options)


def _check_key(cfg: Config, key: str) -> None:
    first, *rest = key.split('.')
    if first not in LIVE_KEYS:
        if first in cfg:
            raise ValueError(
                f"--cfg-options {key}: '{first}' is a variable of the config file and was "
                'substituted when the file was read, so setting it here has no effect; set the '
                'key that uses it (such as train_dataloader.dataset.data_root)')
        known = sorted(LIVE_KEYS | set(cfg))
        raise ValueError(f"--cfg-options {key}: the config has no '{first}'"
                         f'{suggest(first, known)}')
    if first == 'data_preprocessor' and cfg.get('model', {}).get(first):
        raise ValueError(f'--cfg-options {key}: the model has its own data_preprocessor, so '
                         f'this has no effect; set model.{key}')
    node, path = cfg, ''
    for part in key.split('.')[:-1]:
        child = _child(node, part)
        if child is None:
            if path == '' or (isinstance(node, dict) and ('type' in node or part in ENCODINGS)):
                return  # an argument of a class, or a section that the runner reads
            known = sorted({*node, *ENCODINGS}) if isinstance(node, dict) else []
            raise ValueError(f"--cfg-options {key}: '{path}' has no '{part}'"
                             f'{suggest(part, known)}')
        node, path = child, f'{path}.{part}'.lstrip('.')


def _open_sections(cfg: Config, key: str) -> None:
    """Turns a None on the way, such as ``init_cfg=None``, into a section: mmengine refuses it."""
    node: Any = cfg
    for part in key.split('.')[:-1]:
        if hasattr(node, 'get') and part in node and node[part] is None:
            node[part] = {}
        node = _child(node, part)


def _leave_out(cfg: Config, key: str, value: Any, given: set[str]) -> list[str]:
    """Takes out what a switch of a part of the model leaves without a meaning; says what."""
    section, _, name = key.rpartition('.')
    if not section.startswith('model.'):
        return []
    node: Any = cfg
    for part in section.split('.'):
        node = _child(node, part)
    if name == 'type' and isinstance(node, (list, tuple)):
        raise ValueError(f'--cfg-options {key}: {section} is a list of {len(node)}; name one by '
                         f'its number, as in {section}.0.type')
    if not isinstance(node, dict):
        return []
    if name == 'pos_encoding' and value is None and node.get('positions') is not None:
        if f'{section}.positions' in given:
            return []
        return [f'{section}.positions={node.pop("positions")!r} is left out']
    if name != 'type' or node.get('type') in (None, value) or f'{section}._delete_' in given:
        return []
    takes = _arguments(cfg, value)
    dropped = [each for each in node if takes is not None and each not in (*takes, 'type')]
    return [f'{section}.{each}={node.pop(each)!r} is left out, which {value} does not take'
            for each in dropped]


def _arguments(cfg: Config, name: Any) -> set[str] | None:
    """What a class of the model takes; None where that is not known."""
    found = MODELS.get(name) if isinstance(name, str) else None
    if found is None and isinstance(name, str):
        with ROOT.switch_scope_and_registry(cfg.get('default_scope')) as local:
            found = local.get(name)
    takes = None if found is None else accepted_arguments(found)
    if takes is None or not issubclass(found, (TokenEncoding, RelativeEncoding)):
        return takes
    return takes | {'zero_init'}  # which all encodings are built with


def _child(node: Any, part: str) -> Any:
    if isinstance(node, (list, tuple)):
        return node[int(part)] if part.isdigit() and int(part) < len(node) else None
    return node.get(part) if hasattr(node, 'get') else None
