"""Checks the channels between the parts of a model, the commonest mistake where a backbone was
replaced."""
from __future__ import annotations

import copy

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor

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
    scope, necks = scope_of(cfg), [*values_with_keys('model.neck', cfg.model.get('neck'))][:1]
    if necks and type_without_library(necks[0][1]) != 'GlobalAveragePooling':
        # Other necks take any of the maps, in any order.
        parts = [(key, neck) for key, neck in necks if type_without_library(neck) in _NECKS]
    else:
        parts = [(key, head) for key, head in heads_with_classes(cfg) if scope == 'mmseg'
                 or scope == 'mmpretrain' and type_without_library(head) in _CLS_HEADS]
    parts = [(key, part) for key, part in parts if part.get('in_channels') is not None]
    channels = _backbone_map_channels(cfg) if parts else []
    for key, part in parts if channels else ():
        written = part['in_channels']
        several = isinstance(written, (list, tuple))
        index = listed(part.get('in_index', [*range(len(channels))] if several else -1))
        if any(not -len(channels) <= each < len(channels) for each in index):
            continue
        needed = [channels[each] for each in index]
        if needed != listed(written) and (several or len(needed) == 1):
            raise ValueError(
                f'{key}.in_channels={written!r} are not the channels of the maps of model.backbone '
                f'({type_without_library(cfg.model.backbone)}), {channels}; write '
                f'in_channels={needed if several else needed[0]}')


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
