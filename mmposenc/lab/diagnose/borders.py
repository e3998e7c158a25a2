"""The zeros around a map in convolutions, replaced by what has no edge."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mmposenc.functional.convolutions import padding_cells

#: By name: what takes the place of zeros around a map.
BORDERS = ('zeros', 'replicate', 'circular')
_CONVOLUTIONS: set[Callable[..., Any]] = {F.conv2d, torch.conv2d}


class Borders(TorchFunctionMode):
    """While it is entered, 2-D convolutions that pad their map with zeros pad it otherwise, with
    the same weights; those that pad nothing stay as they are.

    Args:
        border: 'zeros' changes nothing; 'replicate' repeats the outermost cells; 'circular' goes on
            at the other side. Of maps smaller than the padding too.

    Attributes:
        padded: how many convolutions have padded something.

    Raises:
        ValueError: for another border.
    """

    def __init__(self, border: str) -> None:
        super().__init__()
        if border not in BORDERS:
            raise ValueError(f'border={border!r} must be one of {BORDERS}')
        self.border, self.padded = border, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _CONVOLUTIONS:
            return func(*args, **kwargs)
        given = dict(zip(('input', 'weight', 'bias', 'stride', 'padding', 'dilation', 'groups'),
                         args, strict=False)) | kwargs
        pads = padding_cells(given.get('padding', 0), given['weight'].shape[-2:],
                             given.get('dilation', 1))
        if not any(pads):
            return func(*args, **kwargs)
        self.padded += 1
        if self.border == 'zeros':
            return func(*args, **kwargs)
        given.update(input=surround(given['input'], pads, self.border), padding=0)
        return func(**given)


def surround(x: Tensor, pads: tuple[int, int], border: str) -> Tensor:
    """A map (..., H, W) with rows and columns around it that 'replicate' or go on 'circular'."""
    for dim, pad in zip((-2, -1), pads, strict=True):
        side = x.shape[dim]
        place = torch.arange(-pad, side + pad, device=x.device)
        x = x.index_select(dim, place % side if border == 'circular' else place.clamp(0, side - 1))
    return x
