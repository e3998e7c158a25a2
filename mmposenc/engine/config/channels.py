"""Channels between the parts of a model: the commonest mistake where a backbone is replaced."""
from __future__ import annotations

import copy
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor

from .models import image_channels
from .nodes import bare_type, listed
from .testing import scope_of

#: Necks whose ``in_channels`` are those of all maps of the backbone, in their order.
_NECKS = ('FPN', 'FPN_CARAFE', 'NASFPN', 'PAFPN', 'ChannelMapper', 'Feature2Pyramid',
          'HybridEncoder', 'ConcatPyramid')
#: Side in pixels of the image that a backbone is asked with.
_SIDE = 64


def check_channels(cfg: Config) -> None:
    """Checks that a neck, or a head without one, takes the channels that the backbone gives.

    Args:
        cfg: the whole config. Where the backbone fails, nothing is said: building it will.

    Raises:
        ValueError: names the key, its value and what to write.
    """
    model = cfg.model
    neck, head = (listed(model.get(name)) for name in ('neck', 'decode_head'))
    if neck:
        part, key = neck[0], 'model.neck' + '.0' * isinstance(model.neck, (list, tuple))
        if not isinstance(part, dict) or bare_type(part) not in _NECKS:
            return
    elif scope_of(cfg) == 'mmseg' and head and isinstance(head[0], dict):
        part, key = head[0], 'model.decode_head' + '.0' * (len(head) > 1)
    else:
        return
    written = part.get('in_channels')
    channels = None if written is None else _channels(cfg)
    if channels is None:
        return
    index = part.get('in_index', -1) if not neck else list(range(len(channels)))
    if any(not -len(channels) <= each < len(channels) for each in listed(index)):
        return
    if isinstance(written, (list, tuple)):
        needed: Any = [channels[each] for each in listed(index)]
        right = list(written) == needed
    else:
        needed = channels[index if isinstance(index, int) else 0]
        right = isinstance(index, list) or written == needed
    if not right:
        raise ValueError(f'{key}.in_channels={written!r} are not the channels of the maps of '
                         f'model.backbone ({bare_type(model.backbone)}), {channels}; write '
                         f'in_channels={needed}')


def _channels(cfg: Config) -> list[int] | None:
    """Channels of each map of a backbone; None if it cannot be told."""
    init_default_scope(scope_of(cfg))
    for device in ('meta', 'cpu'):  # without numbers; some backbones read one while they are built
        try:
            with torch.random.fork_rng(devices=[]), torch.device(device), torch.no_grad():
                backbone = MODELS.build(copy.deepcopy(cfg.model.backbone)).eval()
                maps = backbone(torch.zeros(1, image_channels(cfg), _SIDE, _SIDE))
        except Exception:  # what a backbone raises at this size is not what is asked here
            continue
        if isinstance(maps, (list, tuple)) and all(
                isinstance(each, Tensor) and each.dim() == 4 for each in maps):
            return [each.shape[1] for each in maps]
        return None
    return None
