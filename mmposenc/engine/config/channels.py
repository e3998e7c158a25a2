"""Checks the channels between the parts of a model, the commonest mistake where a backbone was
replaced."""
from __future__ import annotations

import copy

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor

from mmposenc.config_types import ConfigType

from .models import image_channels
from .nodes import heads_with_classes, listed, type_without_library, values_with_keys
from .testing import scope_of

#: Necks whose ``in_channels`` list the channels of all maps of the backbone, in their order.
_NECKS = ('FPN', 'FPN_CARAFE', 'NASFPN', 'PAFPN', 'ChannelMapper', 'Feature2Pyramid',
          'HybridEncoder', 'ConcatPyramid')
#: Heads of classifiers that take the last map of the backbone, or the mean of its cells.
_CLS_HEADS = ('LinearClsHead', 'VisionTransformerClsHead', 'DeiTClsHead')
#: The side in pixels of the image with which a backbone is tried; windows of 7 cells must fit.
_SIDE = 224


def check_channels(cfg: Config) -> None:
    """Check that a neck, or a head of a model without one, takes the channels that the backbone
    returns.

    Args:
        cfg: the whole config. Where the backbone fails, nothing is said: building it will.

    Raises:
        ValueError: names the key, its value and what to write.
    """
    scope, neck = scope_of(cfg), [*values_with_keys('model.neck', cfg.model.get('neck'))][:1]
    if neck and type_without_library(neck[0][1]) != 'GlobalAveragePooling':
        parts = neck
    else:
        parts = [(key, head) for key, head in heads_with_classes(cfg) if scope != 'mmdet'
                 and (scope == 'mmseg' or type_without_library(head) in _CLS_HEADS)]
    parts = [(key, part) for key, part in parts if part.get('in_channels') is not None]
    channels = parts and _backbone_map_channels(cfg)
    for key, part in parts if channels else ():
        if remedy := _remedy(part, channels, key.startswith('model.neck')):
            raise ValueError(f'{key}.in_channels={part["in_channels"]!r} are not the channels of '
                             'the maps of model.backbone '
                             f'({type_without_library(cfg.model.backbone)}), '
                             f'{channels}{remedy}')


def _remedy(part: ConfigType, channels: list[int], is_neck: bool) -> str:
    """The end of a message: what to write into a part that takes other channels; '' if we cannot
    know."""
    written = listed(part['in_channels'])
    # Such a neck may take any of the maps, in any order.
    name = type_without_library(part)
    if is_neck and name not in _NECKS:
        return '' if {*written} <= {*channels} else f'; those of {name} are among them'
    several = isinstance(part['in_channels'], (list, tuple))
    index = part.get('in_index', [*range(len(channels))] if several or is_neck else -1)
    if any(not -len(channels) <= each < len(channels) for each in listed(index)):
        return ''
    needed = [channels[each] for each in listed(index)]
    if needed == written or not several and (is_neck or isinstance(index, list)):
        return ''
    return f'; write in_channels={needed if several else needed[0]}'


def _backbone_map_channels(cfg: Config) -> list[int]:
    """The channels of each map of a backbone; an empty list if they cannot be found out."""
    init_default_scope(scope_of(cfg))
    # First without numbers, but some backbones read a number while they are built.
    for device in ('meta', 'cpu'):
        try:
            with torch.random.fork_rng(devices=[]), torch.device(device), torch.no_grad():
                backbone = MODELS.build(copy.deepcopy(cfg.model.backbone))
                backbone.eval()  # In training mode ResNets return nothing here.
                maps = backbone(torch.zeros(1, image_channels(cfg), _SIDE, _SIDE))
        except Exception:  # Whatever a backbone raises at this size is not the question here.
            continue
        if isinstance(maps, (list, tuple)) and all(
                isinstance(each, Tensor) and each.dim() in (2, 4) for each in maps):
            return [each.shape[1] for each in maps]
        break
    return []
