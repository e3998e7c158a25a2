"""Mixed precision on any device, not only on GPUs."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from mmengine.device import get_device
from mmengine.optim import AmpOptimWrapper as _AmpOptimWrapper
from mmengine.optim import OptimWrapper
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from mmposenc.functional.tracing import autocast_dtype


class AmpOptimWrapper(_AmpOptimWrapper):
    """Mixed precision training that also runs on a CPU.

    On a CPU it autocasts to bfloat16, the only type worth having there; mmengine's own class
    stops with an assertion. bfloat16 has the exponent range of float32, so wherever it is used
    the loss is not scaled and the checkpoint holds no loss scale. Convolutions of maps hardly wider
    than the kernel run in float32 there; see :class:`Float32WhereBfloat16Fails`.

    Args:
        loss_scale: as in mmengine ('dynamic', a float or GradScaler arguments); only float16
            uses it.
        dtype: 'float16' (the default on a GPU) or 'bfloat16' (the default on a CPU).
        **kwargs: to mmengine's OptimWrapper.

    Raises:
        ValueError: a CPU and a dtype other than bfloat16.
    """

    def __init__(self, loss_scale: str | float | dict = 'dynamic',
                 dtype: str | torch.dtype | None = None, **kwargs: object) -> None:
        on_cpu = get_device() == 'cpu'
        if isinstance(dtype, str):
            dtype = getattr(torch, dtype)
        if on_cpu:
            if dtype not in (None, torch.bfloat16):
                raise ValueError(f'optim_wrapper.dtype: {dtype} is not possible on a CPU; '
                                 "use 'bfloat16' or leave it out")
            kwargs.pop('use_fsdp', None)
            # The __init__ of mmengine's class asserts that there is a GPU.
            OptimWrapper.__init__(self, **kwargs)
            self._scale_update_param = None
            self.cast_dtype = torch.bfloat16
        else:
            super().__init__(loss_scale=loss_scale, dtype=dtype, **kwargs)
        if self.cast_dtype is torch.bfloat16:
            self.loss_scaler = _idle_scaler('cpu' if on_cpu else 'cuda')

    @contextmanager
    def optim_context(self, model: torch.nn.Module) -> Iterator[None]:
        """The context of mmengine's class, and on a CPU :class:`Float32WhereBfloat16Fails` too."""
        with super().optim_context(model):
            if get_device() != 'cpu':
                yield
                return
            with Float32WhereBfloat16Fails():
                yield


class Float32WhereBfloat16Fails(TorchFunctionMode):
    """Runs in float32 what torch 2.13 gets wrong in bfloat16 on a CPU.

    Where a row or a column of the kernel meets nothing but padding, as the sides of a 3x3 kernel
    with stride 2 do on a map one pixel wide, its part of the weight's gradient is
    uninitialised memory: any number, and sometimes NaN. Such maps are small, so float32 costs
    nothing.
    """

    def __torch_function__(self, func: Callable, types: Collection[type], args: tuple = (),
                           kwargs: dict | None = None) -> object:
        kwargs = kwargs or {}
        if func not in (F.conv2d, torch.conv2d) or not _is_narrow(*args, **kwargs):
            return func(*args, **kwargs)
        with torch.autocast('cpu', enabled=False):
            args, kwargs = tree_map_only(Tensor, Tensor.float, (args, kwargs))
            return func(*args, **kwargs).bfloat16()


def _is_narrow(input: Tensor, weight: Tensor, bias: Tensor | None = None,
               stride: int | Sequence[int] = 1, padding: str | int | Sequence[int] = 0,
               dilation: int | Sequence[int] = 1, groups: int = 1) -> bool:
    """Whether a map under autocast may be so narrow that a side of the kernel lies outside of it
    wherever the kernel is put."""
    if autocast_dtype('cpu') is None:
        return False
    for axis in (-2, -1):
        step, gap = (value if isinstance(value, int) else value[axis]
                     for value in (stride, dilation))
        if input.shape[axis] < gap * (weight.shape[axis] - 1) + 1 + step:
            return True
    return False


def _idle_scaler(device: str) -> torch.amp.GradScaler:
    """A loss scaler that does nothing."""
    if hasattr(torch.amp, 'GradScaler'):
        return torch.amp.GradScaler(device, enabled=False)
    return torch.cuda.amp.GradScaler(enabled=False)  # This is torch before 2.3.
