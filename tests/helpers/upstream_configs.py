"""The backbones in the configs of mmdet, mmseg and mmpretrain that have a drop-in here."""
import functools
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from mmengine.config import Config

from mmposenc.class_index import CLASSES

#: The modules of the drop-ins, by their names.
DROP_INS = {name: module for name, module in CLASSES['model'].items()
            if module.startswith('openmmlab.upstream')}
#: Configs that the installed release cannot read itself.
BROKEN = {'swin_transformer_v2/swinv2-base-w12_8xb128_in21k-192px.py',
          'swin_transformer_v2/swinv2-large-w12_8xb128_in21k-192px.py'}
_BASES = re.compile(r'[\'"]([^\'"\n]+\.py)[\'"]|from (\.+)([\w.]+) import')


def folder(library):
    return (Path(find_spec(library).origin).parent / '.mim/configs').resolve()


def drop_in(name):
    return getattr(import_module(f'mmposenc.{DROP_INS[name]}'), name)


def upstream(library, name):
    """The library's backbone of this name, or None; of mmpretrain other models have such names."""
    has_it = library in drop_in(name).libraries
    return getattr(import_module(f'{library}.models'), name) if has_it else None


def nodes(cfg):
    """The dicts of a config that have the type of a drop-in."""
    if isinstance(cfg, dict):
        kind = cfg.get('type')
        name = getattr(kind, '__name__', str(kind)).rpartition('.')[2]
        if name in DROP_INS:
            yield {**cfg, 'type': name}
        cfg = list(cfg.values())
    if isinstance(cfg, list | tuple):
        for value in cfg:
            yield from nodes(value)


@functools.lru_cache(None)
def _names_one(file):
    """Whether a config, or one that it inherits from, has the name of a drop-in in it."""
    text = file.read_text()
    if re.search(rf'\b({"|".join(DROP_INS)})\b', text):
        return True
    for base, dots, module in _BASES.findall(text):
        library, _, rest = base.rpartition('::')
        path = file.parents[max(len(dots) - 1, 0)] / (rest or f'{module.replace(".", "/")}.py')
        path = folder(library) / rest if library else path
        if path.is_file() and path.resolve() != file and _names_one(path.resolve()):
            return True
    return False


@functools.lru_cache(None)
def backbones(library):
    """(name, its config, names of the files that have it) for each different one of a library."""
    found = {}
    for file in sorted(folder(library).rglob('*.py')):
        name = file.relative_to(folder(library)).as_posix()
        if name in BROKEN or not _names_one(file):
            continue
        for node in nodes(Config.fromfile(file).get('model', {})):
            kind = node.pop('type')
            if upstream(library, kind):
                key = kind, repr(sorted(node.items()))
                found.setdefault(key, (kind, node, []))[2].append(name)
    return list(found.values())
