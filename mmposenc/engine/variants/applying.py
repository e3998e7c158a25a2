"""Puts other encodings into a config, and checks whether they fit."""
from __future__ import annotations

import argparse
import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from mmengine.config import Config

from mmposenc.backbones.archs.vit import ARCHS
from mmposenc.backbones.base import Backbone
from mmposenc.checkpoint.encoding_names import BUT_ENCODINGS
from mmposenc.class_index import CLASSES
from mmposenc.config_types import ConfigType, ImageSize, ReadOnlyConfig
from mmposenc.encodings.base import RelativeEncoding, TokenEncoding
from mmposenc.encodings.build import required_sizes
from mmposenc.engine.config.config import load_config
from mmposenc.engine.config.image_sizes import Size
from mmposenc.engine.config.images import run_network
from mmposenc.engine.config.models import build_backbone, build_bare
from mmposenc.engine.config.nodes import listed, type_name, type_without_library, value_at
from mmposenc.engine.config.options import config_of_arguments, override_in_place
from mmposenc.engine.config.parsed import ParsedConfig, model_class
from mmposenc.engine.training.layer_decay import OF_MMSEG
from mmposenc.functional.image_sizes import set_img_shapes
from mmposenc.openmmlab.mmdet.detr.positions import LEARNED_GRID, pop_absolute
from mmposenc.registry import MODELS
from mmposenc.terminal.messages import error_text
from mmposenc.terminal.processes import print_in_first_process

from .encodings import Entry, read_entries
from .model_encodings import Changes, encodings_as_they_stand, named_relative_encodings
from .sizes import config_trained_at_size, image_sizes, size_word

#: The side in pixels of an image for a model that cannot run on the meta device.
SMALL = 256
#: Constructors that read custom_keys, mmseg's for encodings that only this project has.
CONSTRUCTORS = ('DefaultOptimWrapperConstructor', 'mmposenc.LayerDecayOptimWrapperConstructor',
                'LearningRateDecayOptimWrapperConstructor', *OF_MMSEG)


def with_entry(parsed: ParsedConfig, entry: Entry) -> Config:
    """A config with an entry's encodings in place of its own; all else stays.

    Args:
        parsed: a config whose model takes encodings, or whose backbone has the name of one here,
            which takes its place.
        entry: what to put there.

    Raises:
        ValueError: what takes encodings can't have these, or the config lacks what else the entry
            changes.
    """
    insertion = parsed.insertion
    changed = copy.deepcopy(parsed.cfg)
    node = changed.model
    for key in insertion.path:  # Configs share parts, so what is changed is copied first.
        place = int(key) if isinstance(node, list) else key
        node[place] = copy.copy(value_at(node, key) or {})
        node = node[place]
    if insertion.kind == 'backbone' and type_name(node) != insertion.type:
        node['type'] = insertion.type
    try:
        changes = _with_own_encodings(parsed, entry.changes)
        if insertion.kind == 'backbone':
            _change_backbone(parsed, node, changes, entry.changes)
        else:
            _change_encoder(parsed, changed.model, node, changes.arguments())
        override_in_place(changed, changes.cfg)
    except ValueError as error:
        text = str(error).replace('--cfg-options ', 'cfg ')
        raise ValueError(f'encoding {entry.name!r} does not fit {insertion.type}: {text}'
                         ) from error
    _exempt_positions_from_decay(changed, insertion.path)
    if changed.get('load_from') and not changed.get('resume') and changed.get('load_strict', True):
        changed.load_strict = BUT_ENCODINGS
    return changed


def _with_own_encodings(parsed: ParsedConfig, changes: Changes) -> Changes:
    """The changes of an entry; where the entry keeps the config's own encodings, they come before
    those of the entry. What an entry puts into some blocks leaves all others as they are."""
    tokens, relative = (not changes.alone and bool(each) and all('blocks' in one for one in each)
                        for each in (changes.tokens or (), changes.relative or ()))
    if not (changes.keep or tokens or relative):
        return changes
    before = encodings_as_they_stand(parsed)
    if not changes.keep:
        taken = {block for each in changes.relative or () for block in each.get('blocks', ())}
        return replace(
            changes, positions=before.positions if tokens else changes.positions,
            tokens=[*(before.tokens or ()), *changes.tokens] if tokens else changes.tokens,
            relative=[*_outside_of(parsed, before, taken), *changes.relative] if relative
            else changes.relative)
    if before.positions is not None and changes.tokens and not tokens:
        raise ValueError(f'the encodings of the config stand at positions={before.positions}, and '
                         'a sum with keep has no places of its own')
    if parsed.cfg.get('load_from') and before.relative and changes.relative:
        raise ValueError("load_from loads the config's own encodings only where they stand in the "
                         'file; name the file as Pretrained in model.backbone.init_cfg')
    return replace(before, cfg=changes.cfg, **{
        kind: added and [*getattr(before, kind), *added]
        for kind, added in (('tokens', changes.tokens), ('relative', changes.relative))})


def _outside_of(parsed: ParsedConfig, before: Changes, taken: Iterable[int]) -> list[ConfigType]:
    """The relative encodings of a config for all blocks but those that are taken."""
    insertion = parsed.insertion
    if insertion.kind == 'backbone':
        count = len(_names_of_relative(parsed, parsed.backbone))
    else:
        count = insertion.options.get('num_layers', 1)
    outside = [dict(each, blocks=[block for block in each.get('blocks', range(count))
                                  if block not in taken]) for each in before.relative]
    return [each for each in outside if each['blocks']]


def _change_backbone(parsed: ParsedConfig, node: ConfigType, changes: Changes, added: Changes
                     ) -> None:
    """Put changes into the config of a backbone; ``added`` are those without its own encodings."""
    takes, cls = parsed.insertion.takes, parsed.insertion.cls
    # Set one by one, because the update of a ConfigDict would merge dicts.
    for key, value in changes.arguments().items():
        node[key] = copy.deepcopy(value)
    init_cfg = node.get('init_cfg')
    pretrained = isinstance(init_cfg, Mapping) and type_name(init_cfg) == 'Pretrained'
    made_for = node.get('img_size', ARCHS.get(str(node.get('arch')), {}).get('img_size'))
    if ('img_size' in takes and parsed.trained_size and not pretrained and not added.keep
            and made_for is None):
        node['img_size'] = parsed.trained_size  # Tables are made for the grid of this size.
    if pretrained and issubclass(cls, Backbone) and init_cfg.get('strict', True):
        node['init_cfg'] = dict(init_cfg, strict=BUT_ENCODINGS)
    if 'trainable' in takes and node.get('frozen_stages', -1) >= 0:
        new = _names_of_added(parsed, node, changes, added)
        node['trainable'] = tuple(dict.fromkeys((*node.get('trainable', ()), *new)))


def _names_of_added(parsed: ParsedConfig, node: ConfigType, changes: Changes, added: Changes
                    ) -> list[str]:
    """Parts of names of the encodings that an entry adds to a backbone. Those of the backbone that
    stay come before them in each list and in each sum."""
    names = []
    if added.tokens and len(changes.tokens) > len(added.tokens):
        before, after = (
            [name for name, module in build_backbone(parsed.library, backbone).named_modules()
             if isinstance(module, TokenEncoding)] for backbone in (parsed.backbone, node))
        names += [name for name in after if name not in before]
    elif added.tokens:
        names.append('pos_encodings')
    count = len(changes.relative or ()) - len(added.relative or ())
    if added.relative and count and added.keep:
        names += [f'rel_pos_encoding.encodings.{index}'
                  for index in range(count, len(changes.relative))]
    elif added.relative and count:
        blocks = _names_of_relative(parsed, node)
        names += [blocks[block] for each in added.relative for block in each['blocks']]
    elif added.relative:
        names.append('rel_pos_encoding')
    return names


def _names_of_relative(parsed: ParsedConfig, backbone: ReadOnlyConfig) -> list[str]:
    """The name of the relative encoding of each block of a backbone, also of a shared one."""
    built = build_backbone(parsed.library, backbone)
    return [f'{parent}.{name}' for parent, module in built.named_modules()
            for name, each in module.named_children()
            if name == 'rel_pos_encoding' and isinstance(each, RelativeEncoding)]


def _change_encoder(parsed: ParsedConfig, model: ConfigType, node: ConfigType,
                    changes: ReadOnlyConfig) -> None:
    around = '.'.join(parsed.insertion.path[:-1])
    owner = value_at(model, around) if around else model
    name = type_without_library(owner)
    if name in CLASSES['model']:
        owner['type'] = f'mmposenc.{name}'
    if 'pos_encoding' in changes:
        node.pop('encoder_pos', None)
        for key in ('pos_encoding', 'positions'):
            node[key] = copy.deepcopy(changes[key])
        if 'encoder_pos' in parsed.insertion.takes:  # A neck has it beside its encoder.
            owner['encoder_pos'] = pop_absolute(node)
    if 'rel_pos_encoding' in changes:
        relative = copy.deepcopy(changes['rel_pos_encoding'])
        for each in listed(relative):
            # An encoder has no fixed grid. We take that of its learned table, 25x42 cells: 800x1333
            # pixels at a stride of 32.
            for key, size in required_sizes(MODELS.get(each['type']),
                                            dict(grid_shape=LEARNED_GRID)).items():
                each.setdefault(key, size)
        node['rel_pos_encoding'] = relative  # An update would merge it with the former one.
        node['rel_pos_sharing'] = changes['rel_pos_sharing']
        attention = value_at(node, 'layer_cfg.self_attn_cfg') or {}
        if 'rel_pos_encoding' in attention:
            node['layer_cfg'] = dict(node['layer_cfg'], self_attn_cfg=dict(
                attention, rel_pos_encoding=None))


def _exempt_positions_from_decay(cfg: Config, path: tuple[str, ...]) -> None:
    """Encodings take no weight decay, whatever the config names, but for ``decaying_layers`` of the
    relative ones. They keep the learning rate of the part that they stand in, at the path."""
    optim = cfg.get('optim_wrapper') or {}
    # mmengine requires this value.
    decays = (optim.get('optimizer') or {}).get('weight_decay') is not None
    if not decays or optim.get('constructor', CONSTRUCTORS[0]) not in CONSTRUCTORS:
        return
    paramwise = dict(optim.get('paramwise_cfg') or {})
    keys = dict(paramwise.get('custom_keys') or {})
    around = [key for key in keys if key in '.'.join(path) and 'lr_mult' in keys[key]]
    rate = {'lr_mult': keys[max(around, key=len)]['lr_mult']} if around else {}
    multipliers = {'pos_encodings': 0.0, 'rel_pos_encoding': 0.0}
    relative = named_relative_encodings(value_at(cfg.model, '.'.join(path)))
    in_sum = [f'rel_pos_encoding.encodings.{index}' for index in range(len(relative))]
    for index, encoding in enumerate(relative):
        names = ['rel_pos_encoding'] if len(relative) == 1 else in_sum[index:index + 1]
        if any(value_at(each, 'blocks') for each in relative):  # Sums differ from block to block.
            names = ['rel_pos_encoding', *in_sum[:index + 1]]
        cls = model_class(value_at(encoding, 'type'), cfg.default_scope)
        multipliers |= {f'{name}.{layer}': 1.0 for name in names
                        for layer in getattr(cls, 'decaying_layers', ())}
    new = {key: dict(decay_mult=decay, **rate) for key, decay in multipliers.items()
           if key not in keys and key.partition('.')[0] not in keys}
    cfg.optim_wrapper.paramwise_cfg = dict(paramwise, custom_keys={**keys, **new})


def with_entry_checked(parsed: ParsedConfig, entry: Entry, sizes: Mapping[ImageSize, Size]
                       ) -> Config:
    """The config of :func:`with_entry`, after a look whether its encodings fit the model at all
    sizes.

    The model is built and passed through once a size, with one image, on torch's meta device,
    which computes nothing; or with small images on the CPU, where a model needs numbers.

    Args:
        parsed: the config, without the entry.
        entry: what is compared.
        sizes: (H, W) of images at each size of a test: :func:`.sizes.image_sizes`.

    Raises:
        ValueError: names the encoding, what it does not fit, the size, and what is required.
    """
    changed = with_entry(parsed, entry)
    # Whatever else an entry changes may affect what a neck or head takes.
    whole = parsed.insertion.kind == 'encoder' or bool(entry.changes.cfg)
    _raise_first_error(f'encoding {entry.name!r} does not fit {parsed.insertion.type}', changed,
                       sizes, whole=whole)
    return changed


def _raise_first_error(what: str, cfg: Config, sizes: Mapping[ImageSize, Size], *,
                       whole: bool = True) -> None:
    """Raise ValueError, which begins with ``what``, if a model, or its backbone, cannot be built or
    fails at one of some sizes."""
    parsed, where = ParsedConfig(cfg), ''
    for device in ('meta', 'cpu'):
        try:
            model = (build_bare(cfg, device, check=device == 'meta') if whole
                     else build_backbone(parsed.library, parsed.backbone, device))
            for at, size in sizes.items():
                where = f' at {size[0]}x{size[1]} pixels (--sizes {size_word(at)})'
                image = torch.zeros(1, parsed.channels, *size, device=device)
                with torch.no_grad():
                    if whole:
                        run_network(parsed.library, model, image)
                    else:
                        model(set_img_shapes(image, [size]))
            return
        except Exception as error:  # A model may raise anything for what it cannot have.
            if device == 'cpu' or isinstance(error, ValueError):
                raise ValueError(f'{what}{where}: {error_text(error)}') from error
        # The model needs numbers, as deformable attention does. None of the encodings that it takes
        # has a largest size, so small images are enough, one for each size that is left.
        small = {(min(height, SMALL), min(width, SMALL)): at
                 for at, (height, width) in sizes.items()}
        sizes, where = {at: size for size, at in small.items()}, ''


def check_builds(cfg: Config) -> None:
    """Check that a config's whole model can be built: neck, head and all that they are given.

    Args:
        cfg: the config, with an entry's encodings.

    Raises:
        ValueError: it can't, with the reason.
    """
    _raise_first_error("the model of the config can't be built", cfg, {})


def read_encoded_config(args: argparse.Namespace) -> Config:
    """The config that a command's arguments name, with the image size of a training and the
    encodings of its ``--encoding``, after a look whether they fit its model.

    Args:
        args: the arguments of a command with ``add_config`` and ``add_encoding``, see
            :mod:`mmposenc.terminal.options`.

    Raises:
        ValueError: there is no such encoding, or it does not fit.
        FileNotFoundError: there is no such file.
    """
    cfg, word = None, args.encoding
    if getattr(args, 'trained_size', None):  # before --data, which asks how large objects are
        cfg, changes = config_trained_at_size(load_config(args.config), args.trained_size)
        print_in_first_process(f'--size {args.trained_size}: {"; ".join(changes)}')
    cfg = config_of_arguments(args, cfg)
    if word is None:
        return cfg
    try:
        entries = read_entries([word])
        if len(entries) > 1:
            raise ValueError(f'--encoding {word!r} names {len(entries)}, and a model has one; '
                             'mmposenc compare takes several')
        parsed = ParsedConfig(cfg)
        return with_entry_checked(parsed, entries[0], image_sizes(parsed, [1.0]))
    except (ValueError, FileNotFoundError) as error:
        text = str(error).replace('--encodings', '--encoding').replace(' (--sizes 1)', '')
        raise type(error)(text) from error
