"""Mixed precision on any device."""
from __future__ import annotations

from typing import Any

import torch
from mmengine.device import get_device
from mmengine.optim import AmpOptimWrapper as _AmpOptimWrapper
from mmengine.optim import OptimWrapper


class AmpOptimWrapper(_AmpOptimWrapper):
    """Mixed precision training that also runs on a CPU.

    On a CPU it autocasts to bfloat16, the only type worth having there; mmengine's own class
    stops with an assertion. bfloat16 has the exponent range of float32, so wherever it is used
    the loss is not scaled and the checkpoint holds no loss scale.

    Args:
        loss_scale: as in mmengine ('dynamic', a float or GradScaler arguments); only float16
            uses it.
        dtype: 'float16' (the default on a GPU) or 'bfloat16' (the default on a CPU).
        **kwargs: to mmengine's OptimWrapper.

    Raises:
        ValueError: a CPU and a dtype other than bfloat16.
    """

    def __init__(self, loss_scale: str | float | dict = 'dynamic',
                 dtype: str | torch.dtype | None = None, **kwargs: Any) -> None:
        on_cpu = get_device() == 'cpu'
        if isinstance(dtype, str):
            dtype = getattr(torch, dtype)
        if on_cpu:
            if dtype not in (None, torch.bfloat16):
                raise ValueError(f'optim_wrapper.dtype: {dtype} is not possible on a CPU; '
                                 "use 'bfloat16' or leave it out")
            kwargs.pop('use_fsdp', None)
            OptimWrapper.__init__(self, **kwargs)  # mmengine's own __init__ asserts a GPU
            self._scale_update_param = None
            self.cast_dtype = torch.bfloat16
        else:
            super().__init__(loss_scale=loss_scale, dtype=dtype, **kwargs)
        if self.cast_dtype is torch.bfloat16:
            self.loss_scaler = _no_scaler('cpu' if on_cpu else 'cuda')

    def load_state_dict(self, state_dict: dict) -> None:
        """Also takes the state of a run in float32 or bfloat16, which has no loss scale."""
        state_dict = dict(state_dict)
        if not state_dict.get('loss_scaler'):
            state_dict.pop('loss_scaler', None)
        super().load_state_dict(state_dict)


def _no_scaler(device: str) -> Any:
    """A loss scaler that does nothing."""
    if hasattr(torch.amp, 'GradScaler'):
        return torch.amp.GradScaler(device, enabled=False)
    return torch.cuda.amp.GradScaler(enabled=False)  # torch before 2.3
