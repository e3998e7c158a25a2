"""A config with other encodings, and whether they fit."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.config import Config

from mmposenc.backbones.archs import replaced_encodings
from mmposenc.backbones.archs.vit import ARCHS
from mmposenc.backbones.base import Backbone
from mmposenc.checkpoint.encoding_names import BUT_ENCODINGS, SLOTS
from mmposenc.encodings.build import required_sizes
from mmposenc.engine.config.data import report
from mmposenc.engine.config.models import build_bare, image_channels, pass_once
from mmposenc.engine.config.nodes import listed, tested_size, trained_size, type_name
from mmposenc.engine.config.options import override
from mmposenc.engine.config.testing import scope_of
from mmposenc.engine.training.layer_decay import OF_MMSEG
from mmposenc.functional.image_sizes import set_img_shapes
from mmposenc.openmmlab.mmdet.detr.positions import LEARNED_GRID
from mmposenc.registry import MODELS
from mmposenc.terminal.messages import describe

from .encodings import Entry, changes_of, read_entries
from .insertion import Insertion, build_backbone, find_insertion
from .rows import own_encodings
from .sizes import resized

#: What names of parameters of encodings hold, and their weight decay: none but for a projection.
NO_DECAY = {'pos_encodings': 0.0, 'rel_pos_encoding': 0.0, 'rel_pos_encoding.pos_proj': 1.0}
#: Side in pixels of an image for a model that needs numbers.
SMALL = 256
#: Constructors that read custom_keys; mmseg's have ours in their place.
CONSTRUCTORS = ('DefaultOptimWrapperConstructor', 'mmposenc.LayerDecayOptimWrapperConstructor',
                'LearningRateDecayOptimWrapperConstructor', *OF_MMSEG)


def apply(cfg: Config, entry: Entry) -> Config:
    """A config with an entry's encodings in place of its own; all else stays.

    Args:
        cfg: of a model that takes encodings, or whose backbone has the name of one here, which
            takes its place; not changed.
        entry: what to put there.

    Raises:
        ValueError: nothing takes encodings, what does can't have these, or the config lacks what
            else the entry changes.
    """
    insertion = find_insertion(cfg)
    changed = copy.deepcopy(cfg)
    node: Any = changed.model
    for key in insertion.path:  # configs share parts: what is changed becomes the model's own
        node[key] = dict(node[key])
        node = node[key]
    if insertion.kind == 'backbone' and type_name(node) != insertion.type:
        node['type'] = insertion.type
    put = {'backbone': _into_backbone, 'pool': _into_pool, 'encoder': _into_encoder}
    try:
        put[insertion.kind](changed, node, insertion, _with_own(changed, insertion, entry.changes))
        _resize_own(cfg, node, insertion, entry.changes)
        override(changed, entry.changes['cfg'])
    except ValueError as error:
        text = str(error).replace('--cfg-options ', 'cfg ')
        raise ValueError(f'encoding {entry.name!r} does not fit {insertion.type}: {text}'
                         ) from error
    _leave_without_decay(changed, insertion.path)
    if changed.get('load_from') and not changed.get('resume') and changed.get('load_strict', True):
        changed.load_strict = BUT_ENCODINGS
    return changed


def _with_own(cfg: Config, insertion: Insertion, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes of an entry, with the config's own encodings before its own where they stay."""
    if 'own' not in changes:
        return changes
    own = own_encodings(cfg, insertion)
    added = {slot: listed(changes[slot]) for slot in SLOTS if slot in changes}
    if own.positions is not None and 'pos_encoding' in added:
        raise ValueError(f'the encodings of the config stand at positions={own.positions}, and a '
                         'sum with keep or resize has no places of its own')
    if cfg.get('load_from') and (changes['own'] == 'resize'
                                 or own.relative and 'rel_pos_encoding' in added):
        raise ValueError("load_from loads the config's own encodings only where they stand in the "
                         'file and in that size; name the file as Pretrained in '
                         'model.backbone.init_cfg')
    tokens, relative = ([*standing, *added[slot]] if slot in added else None for slot, standing
                        in zip(SLOTS, (own.tokens, own.relative), strict=True))
    sums = changes_of(tokens, relative, own.positions, own.sharing, changes['cfg'])
    return {**sums, 'own': changes['own'], 'added': changes}


def _resize_own(cfg: Config, node: Any, insertion: Insertion, changes: dict[str, Any]) -> None:
    """Has the config's own tables made for the size of training, where an entry asks for it."""
    if changes.get('own') != 'resize':
        return
    size = trained_size(cfg)
    if 'img_size' not in insertion.takes or size is None:
        raise ValueError('resize: its own tables are for images of any size, or training has no '
                         'one size; keep leaves them as they are')
    made_for = _made_for(node)
    if made_for in (size, list(size)) or size == (made_for, made_for):
        raise ValueError(f'resize: its own tables are made for {size[0]}x{size[1]} pixels already, '
                         'the size of training; keep is the same')
    node['img_size'] = size


def _made_for(node: Any) -> Any:
    """The size of images that a config has a backbone's tables made for; None: the default."""
    return node.get('img_size', ARCHS.get(str(node.get('arch')), {}).get('img_size'))


def _into_backbone(cfg: Config, node: Any, insertion: Insertion, changes: dict[str, Any]) -> None:
    takes = insertion.takes
    for key in set(changes) - {'cfg', 'own', 'added'}:  # a ConfigDict's update would merge
        node[key] = copy.deepcopy(changes[key])
    size = trained_size(cfg)
    pretrained = _type_of(node.get('init_cfg')) == 'Pretrained'
    if ('img_size' in takes and size and not pretrained and 'own' not in changes
            and _made_for(node) is None):
        node['img_size'] = size  # the grid that tables are made for
    if pretrained and issubclass(insertion.cls, Backbone) and node['init_cfg'].get('strict', True):
        node['init_cfg'] = dict(node['init_cfg'], strict=BUT_ENCODINGS)
    if 'trainable' in takes and node.get('frozen_stages', -1) >= 0:
        new = [name for name, key in (('pos_encodings', 'pos_encoding'),
                                      ('rel_pos_encoding', 'rel_pos_encoding'))
               if changes.get('added', changes).get(key)]
        node['trainable'] = tuple(dict.fromkeys((*node.get('trainable', ()), *new)))


def _type_of(section: Any) -> Any:
    return section.get('type') if isinstance(section, dict) else None


def _into_pool(cfg: Config, node: Any, insertion: Insertion, changes: dict[str, Any]) -> None:
    from mmposenc.openmmlab.mmpretrain.resnet import CONTEXT_POOL
    given = changes.get('pos_encoding')
    if changes.get('rel_pos_encoding') or changes.get('positions') or not (
            given is None or isinstance(given, dict) and given['type'] == CONTEXT_POOL['type']):
        raise ValueError('it has no tokens; ContextPool alone can stand there, in place of its '
                         'pooling')
    if 'pos_encoding' in changes:
        if given is None:
            node.pop('pool_at', None)
        node['context_pool'] = given and {**CONTEXT_POOL, **given}


def _into_encoder(cfg: Config, node: Any, insertion: Insertion, changes: dict[str, Any]) -> None:
    owner: Any = cfg.model
    for key in insertion.path[:-1]:
        owner = owner[key]
    owner['type'] = f"mmposenc.{insertion.type.rpartition('.')[2]}"
    if 'pos_encoding' in changes:
        node.pop('encoder_pos', None)
        for key in ('pos_encoding', 'positions'):
            node[key] = copy.deepcopy(changes[key])
    if 'rel_pos_encoding' in changes:
        relative = copy.deepcopy(changes['rel_pos_encoding'])
        for each in listed(relative):
            # An encoder knows no grid: that of its learned table, 25x42 cells, is 800x1333 pixels
            # at a stride of 32.
            for key, size in required_sizes(MODELS.get(each['type']),
                                            dict(grid_shape=LEARNED_GRID)).items():
                each.setdefault(key, size)
        layer = dict(node.get('layer_cfg') or {})
        attention = dict(layer.get('self_attn_cfg') or {})
        attention.pop('rel_pos_encoding', None)
        node.pop('rel_pos_encoding', None)
        if relative:
            attention['rel_pos_encoding'] = relative
            node['rel_pos_sharing'] = changes['rel_pos_sharing']
        else:
            node.pop('rel_pos_sharing', None)
        node['layer_cfg'] = dict(layer, self_attn_cfg=attention)


def _leave_without_decay(cfg: Config, path: tuple[str, ...]) -> None:
    """Tables and kernels of positions take no weight decay, whatever the config names; they keep
    the learning rate of the part that they stand in."""
    optim = cfg.get('optim_wrapper') or {}
    decays = (optim.get('optimizer') or {}).get('weight_decay') is not None  # mmengine asks for it
    if not decays or optim.get('constructor', CONSTRUCTORS[0]) not in CONSTRUCTORS:
        return
    paramwise = dict(optim.get('paramwise_cfg') or {})
    keys = dict(paramwise.get('custom_keys') or {})
    around = [key for key in keys if key in '.'.join(path) and 'lr_mult' in keys[key]]
    rate = {'lr_mult': keys[max(around, key=len)]['lr_mult']} if around else {}
    new = {key: dict(decay_mult=decay, **rate) for key, decay in NO_DECAY.items()
           if key not in keys and key.partition('.')[0] not in keys}
    cfg.optim_wrapper.paramwise_cfg = dict(paramwise, custom_keys={**keys, **new})


def check_fits(cfg: Config, entry: Entry, sizes: Sequence[float],
               size: tuple[int, int] | None = None) -> None:
    """Looks whether an entry's encodings can stand in a config's model, at all sizes.

    The model is built and passed through once a size, with one image, on torch's meta device,
    which computes nothing; or once, with a small image on the CPU, where a model needs numbers.

    Args:
        cfg: the config, without the entry.
        entry: what is compared.
        sizes: factors of the test's image size.
        size: (H, W) of a test image, where the config does not say it.

    Raises:
        ValueError: names the encoding, what it does not fit, the size, and what is required.
    """
    insertion, changed = find_insertion(cfg), apply(cfg, entry)
    height, width = tested_size(changed) or size or trained_size(changed) or (224, 224)
    pixels = {factor: tested_size(resized(changed, factor))
              or (round(height * factor), round(width * factor)) for factor in sizes}
    changed.model.pop('init_cfg', None)
    # What else an entry changes may be what a neck or head takes.
    whole = insertion.kind == 'encoder' or bool(entry.changes['cfg'])
    error = _first_error(changed, whole, pixels, 'meta')
    if error is not None and not isinstance(error[0], ValueError):
        # A model that needs numbers, as deformable attention does. No encoding that it takes has a
        # largest size, so that a small image shows the same.
        small = (min(height, SMALL), min(width, SMALL))
        error = _first_error(changed, whole, {1.0: small}, 'cpu')
    if error is not None:
        raise ValueError(f'encoding {entry.name!r} does not fit {insertion.type}{error[1]}: '
                         f'{describe(error[0])}') from error[0]


def check_builds(cfg: Config) -> None:
    """Looks whether a config's whole model can be built: neck, head and what they are given.

    Args:
        cfg: the config, with an entry's encodings.

    Raises:
        ValueError: it can't, with the reason; or a DETR that could not tell what it found.
    """
    for device in ('meta', 'cpu'):  # models that need numbers can't be built without
        try:
            model = build_bare(cfg, device)
            break
        except Exception as error:
            reason = error
    else:  # OpenMMLab's older way to name weights, which a base config of a ResNet still has
        hint = (' (model.pretrained=None leaves out the weights of another backbone)'
                * (cfg.model.get('pretrained') is not None))
        raise ValueError(f'the model of the config can\'t be built: {describe(reason)}{hint}'
                         ) from reason
    _check_queries(model)


def _check_queries(model: Any) -> None:
    """mmdet's DETRs take the best max_per_img of their queries, and fail in the first validation
    where there are fewer."""
    head, queries = getattr(model, 'bbox_head', None), getattr(model, 'num_queries', None)
    wanted = (getattr(head, 'test_cfg', None) or {}).get('max_per_img')
    if head is None or not queries or wanted is None:
        return
    most = queries * (head.num_classes if head.loss_cls.use_sigmoid else 1)
    if wanted > most:
        raise ValueError(f'model.test_cfg.max_per_img={wanted} must be at most {most}, what '
                         f'model.num_queries={queries} can give')


def with_encoding(cfg: Config, word: str | None) -> Config:
    """The config with the encodings of ``--encoding``, after a look whether they fit its model.

    Args:
        cfg: not changed.
        word: as in :func:`.encodings.read_entries`; None: the config as it is.

    Raises:
        ValueError: there is no such encoding, or it does not fit.
        FileNotFoundError: there is no such file.
    """
    if word is None:
        return cfg
    try:
        entries = read_entries([word])
        if len(entries) > 1:
            raise ValueError(f'--encoding {word!r} names {len(entries)}, and a model has one; '
                             'mmposenc compare takes several')
        check_fits(cfg, entries[0], [1.0])
    except (ValueError, FileNotFoundError) as error:
        text = str(error).replace('--encodings', '--encoding').replace(' (--sizes 1)', '')
        raise type(error)(text) from error
    _report_replaced(cfg, entries[0].changes)
    return apply(cfg, entries[0])


def _report_replaced(cfg: Config, changes: dict[str, Any]) -> None:
    """Prints which encodings that the config names are replaced; a model reports what it has by
    default."""
    if 'own' in changes:
        return
    options = find_insertion(cfg).options
    named = {slot: [each for each in listed(options.get(slot) or []) if 'type' in each]
             for slot in SLOTS if slot in changes}
    for line in replaced_encodings(object, named, {slot: changes[slot] for slot in named}).values():
        if line:
            report(f'{line} of the config')


def _first_error(cfg: Config, whole: bool, pixels: dict[float, tuple[int, int]], device: str
                 ) -> tuple[Exception, str] | None:
    where = ''
    try:
        model: Any = (build_bare if whole else build_backbone)(cfg, device)
        for factor, size in pixels.items():
            where = f' at {size[0]}x{size[1]} pixels (--sizes {factor:g})'
            image = torch.zeros(1, image_channels(cfg), *size, device=device)
            with torch.no_grad():
                if whole:
                    pass_once(scope_of(cfg), model, image)
                else:
                    model(set_img_shapes(image, [size]))
    except Exception as error:  # whatever a model raises for what it can't have
        return error, where
    return None
