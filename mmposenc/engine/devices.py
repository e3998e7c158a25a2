"""The device a command runs on."""
from __future__ import annotations

import torch
from mmengine.device import get_device

from mmposenc.command_line import describe


def device_of(name: str | None) -> torch.device:
    """A device by its name, 'cpu' or 'cuda:1'; None: an accelerator, where there is one.

    Raises:
        ValueError: there is none of that name here.
    """
    try:
        device = torch.device(name or get_device())
        torch.empty(1, device=device).tolist()  # which 'meta' has nothing for
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f'device={name!r} can not be used here: {describe(error)}') from error
    return device
