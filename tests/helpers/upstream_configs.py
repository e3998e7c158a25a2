"""The backbones in the configs of mmdet, mmseg and mmpretrain that have a drop-in here."""
import functools
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import yaml
from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmposenc.class_index import CLASSES
from mmposenc.signatures import parameters_of

#: The modules of the drop-ins, by their names.
DROP_INS = {name: module for name, module in CLASSES['model'].items()
            if module.startswith('openmmlab.upstream')}
#: Configs that the installed release cannot read itself.
BROKEN = {'swin_transformer_v2/swinv2-base-w12_8xb128_in21k-192px.py',
          'swin_transformer_v2/swinv2-large-w12_8xb128_in21k-192px.py'}
_BASES = re.compile(r'[\'"]([^\'"\n]+\.py)[\'"]|from (\.+)([\w.]+) import')

_ARGUMENTS = yaml.safe_load(Path(__file__).with_name('upstream_arguments.yaml').read_text())
#: Arguments of a small network of each library and class.
SMALL = {tuple(case.split()): options for case, options in _ARGUMENTS['small'].items()}
#: Library, class and arguments that no config has.
ARGUMENTS = [
    *((*case, {**options, 'frozen_stages': frozen}) for case, options in SMALL.items()
      if 'Swin' in case[1] for frozen in (0, 1)),
    *((*case.split(), options) for case, some in _ARGUMENTS['more'].items() for options in some)]
WEIGHTS = ('init_cfg', 'pretrained')
WIDTHS = ('embed_dims', 'feedforward_channels', 'out_channels')


def folder(library):
    return (Path(find_spec(library).origin).parent / '.mim/configs').resolve()


def drop_in(name):
    return getattr(import_module(f'mmposenc.{DROP_INS[name]}'), name)


def upstream(library, name):
    """The library's backbone of this name, or None; of mmpretrain other models have such names."""
    has_it = library in drop_in(name).libraries
    return getattr(import_module(f'{library}.models'), name) if has_it else None


def build(library, name, **options):
    """A small drop-in in the scope of a library."""
    with DefaultScope.overwrite_default_scope(library):
        return drop_in(name)(**{**SMALL[library, name], **options})


def theirs(library, name, **options):
    """The library's own class with the same arguments."""
    with DefaultScope.overwrite_default_scope(library):
        return upstream(library, name)(**{**SMALL[library, name], **options})


def cut(kind, options, narrower=1):
    """The arguments with at most two blocks a stage and so many times fewer channels, without
    weights; of plain transformers, whose tables take a whole image, with 5 patches a side."""
    def smaller(name, value):
        if name in ('depths', 'num_layers', 'frozen_stages'):
            return min(value, 2)
        return value // narrower if name in WIDTHS else value

    def shortened(sizes):
        return {name: [smaller(name, each) for each in value] if isinstance(value, list | tuple)
                else smaller(name, value) for name, value in sizes.items()}
    defaults = {name: parameters_of(kind)[name].default for name in WIDTHS
                if name in parameters_of(kind)}
    options = shortened({name: value for name, value in {**defaults, **options}.items()
                         if name not in WEIGHTS})
    if hasattr(kind, 'arch_zoo'):
        arch = options.get('arch', parameters_of(kind)['arch'].default)
        options['arch'] = shortened(kind.arch_zoo[arch] if isinstance(arch, str) else arch)
    if DROP_INS[kind.__name__].endswith('vit'):
        options['img_size'] = 5 * options.get('patch_size', 16)
        if not isinstance(options.get('out_indices', -1), int):
            options['out_indices'] = [0, 1]
    if kind.__name__ == 'ViTSAM':
        options['arch']['global_attn_indexes'] = [1]
    return options


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


def _nodes_by_file(library):
    """(name of a file, config, name of a drop-in in it, its config)"""
    for file in sorted(folder(library).rglob('*.py')):
        name = file.relative_to(folder(library)).as_posix()
        if name not in BROKEN and _names_one(file):
            cfg = Config.fromfile(file)
            for node in nodes(cfg.get('model', {})):
                if upstream(library, kind := node.pop('type')):
                    yield name, cfg, kind, node


@functools.lru_cache(None)
def backbones(library):
    """(name, its config, names of the files that have it) for each different one of a library."""
    found = {}
    for name, _, kind, node in _nodes_by_file(library):
        found.setdefault((kind, repr(sorted(node.items()))), (kind, node, []))[2].append(name)
    return list(found.values())


def paramwise_kinds(library):
    """(name, its config, optimizer's wrapper without the optimizer) for each different one."""
    found = {}
    for _, cfg, kind, node in _nodes_by_file(library):
        if optim := {key: value for key, value in (cfg.get('optim_wrapper') or {}).items()
                     if key in ('constructor', 'paramwise_cfg')}:
            found.setdefault((kind, repr(optim)), (kind, node, optim))
    return list(found.values())
