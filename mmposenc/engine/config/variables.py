"""Finds variables of a config's bases that a child tries to change, which has no effect."""
from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from mmengine.config import Config

from .nodes import keys_and_values


def refuse_unused_variables(path: Path, live: set[str]) -> None:
    """Refuse a config that sets a variable of its base without using it.

    The keys that use ``max_epochs = 12`` or ``train_pipeline = [...]`` in a base get its value when
    the base is read. A child that sets the variable again changes nothing, and mmengine does not
    say so.

    Args:
        path: the config file, which was read already.
        live: keys of the top level that are read; all others are variables.

    Raises:
        ValueError: it names the variable, the base and a key that used it.
    """
    if path.suffix != '.py':
        return  # A JSON or YAML file has no variables.
    tree = ast.parse(path.read_text(encoding='utf-8'))
    used = {node.id for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    unused = {target.id: node.value for node in tree.body if isinstance(node, ast.Assign)
              for target in node.targets
              if isinstance(target, ast.Name) and target.id not in used | live}
    bases = ast.literal_eval(unused.pop('_base_')) if '_base_' in unused else []
    if not unused:
        return
    for base in [bases] if isinstance(bases, str) else bases:
        before = Config.fromfile(Config._get_cfg_path(base, str(path))[0]).to_dict()
        for name in sorted(unused.keys() & before.keys()):
            keys = [key for key in _keys_of(before[name], before) if key.split('.')[0] in live]
            if keys and ast.unparse(unused[name]) != repr(before[name]):
                close = [key for key in keys if key.rpartition('.')[2] in name] or keys
                raise ValueError(
                    f'{path} sets {name}, a variable of its base {base}, which has used it '
                    f'already, so this changes nothing; set the keys that use it, such as '
                    f'{close[0]} (in this file, as in "{close[0].split(".")[0]} = dict(...)")')


def _keys_of(value: object, node: object, key: str = '') -> Iterator[str]:
    """The dotted keys of all values below a node."""
    for name, child in keys_and_values(node):
        path = f'{key}.{name}'.lstrip('.')
        if type(child) is type(value) and child == value:
            yield path
        yield from _keys_of(value, child, path)
