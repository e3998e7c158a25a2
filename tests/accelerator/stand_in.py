"""A GPU made of paper: code written for CUDA runs in a CPU build of torch, and is watched.

Tensors of class :class:`StandInTensor` say ``device='cuda:0'`` and compute on the CPU (or, where
sizes alone are asked for, on the meta device), so that every branch for accelerators runs forward
and backward. Watched are:

- tensors of both devices in one operator: an error, as on a GPU;
- waits: what makes the host wait for a GPU, with the line of the project that did it;
- bytes that live at once (:mod:`stand_in_memory`);
- operators that have no deterministic form on CUDA: an error where torch would raise one.

Nothing is said about speed; kernels that CUDA lacks in some dtype go unnoticed. Several patches of
torch hold for the whole process, and its end must be :func:`leave`: tests start one of their own.
"""
from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import stand_in_kernels as kernels
import torch
from stand_in_memory import Memory
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

CUDA = torch.device('cuda', 0)
aten = torch.ops.aten
#: Operators whose size or value the host has to wait for.
WAITS = {
    aten._local_scalar_dense.default: 'item', aten.nonzero.default: 'nonzero',
    aten.masked_select.default: 'masked_select', aten._unique2.default: 'unique',
    aten.unique_dim.default: 'unique', aten.unique_consecutive.default: 'unique',
    aten.bincount.default: 'bincount', aten.equal.default: 'equal',
    aten.is_nonzero.default: 'bool', aten.repeat_interleave.Tensor: 'repeat_interleave'}
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default,
            aten._unsafe_index.Tensor)
#: What raises on CUDA under ``torch.use_deterministic_algorithms(True)`` (its documentation); of
#: sums along a dimension only those of floating numbers.
NOT_DETERMINISTIC = (
    aten.upsample_bicubic2d_backward.default, aten.upsample_bilinear2d_backward.default,
    aten.grid_sampler_2d_backward.default, aten._adaptive_avg_pool2d_backward.default,
    aten.reflection_pad2d_backward.default, aten.max_pool3d_with_indices_backward.default,
    aten.nll_loss2d_forward.default, aten.adaptive_max_pool2d_backward.default,
    aten.cumsum.default, aten.cumsum_.default)


class Wait(NamedTuple):
    """What made the host wait, and the line that did."""

    what: str
    where: str


def install(folder: Path) -> None:
    """Build the library in a folder and patch torch, once a process and before the first backward
    pass, which starts the engine."""
    root, source = Path(torch.__file__).parent, Path(__file__).with_suffix('.cpp')
    library = folder / 'stand_in.so'
    subprocess.run(['g++', '-O0', '-std=c++20', '-shared', '-fPIC', f'-I{root}/include', source,
                    '-o', library, f'-L{root}/lib', '-lc10', '-ltorch_cpu'], check=True)
    ctypes.CDLL(str(library)).stand_in()
    torch.cuda._lazy_init = lambda: None
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *args, **kwargs: True
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(x, device='cuda') is dispatched


def leave(code: int) -> None:
    """End the process: the engine's device thread does not survive the interpreter's own end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class StandInTensor(Tensor):
    """A tensor ``elem`` of another device that says it lies on the GPU."""

    elem: Tensor

    @staticmethod
    def __new__(cls, elem: Tensor, requires_grad: bool = False) -> StandInTensor:
        out = Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), storage_offset=elem.storage_offset(),
            dtype=elem.dtype, layout=elem.layout, device=CUDA, requires_grad=requires_grad)
        out.elem = elem
        if _ACTIVE:
            _ACTIVE[-1].memory.add(elem)
        return out

    def __repr__(self, **_: Any) -> str:
        return f'StandInTensor({self.elem!r})'

    def tolist(self) -> Any:  # torch refuses subclasses
        if _ACTIVE:
            _ACTIVE[-1].wait('tolist')
        return self.elem.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, _ACTIVE[-1] if _ACTIVE else None)


_ACTIVE: list[StandIn] = []


class StandIn(TorchDispatchMode):
    """The device, while it is entered.

    Args:
        values: whether tensors hold numbers; without, they lie on the meta device, and sizes are
            all there is: memory can be counted of what would take hours.
    """

    def __init__(self, values: bool = True) -> None:
        super().__init__()
        self.values, self.waits, self.memory = values, [], Memory()
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> StandIn:
        from mmposenc.functional import grid_cache
        _ACTIVE.append(self)
        grid_cache.CACHE.clear()
        # The cache stands aside under any dispatch mode; on a GPU it would not.
        self._patches.enter_context(mock.patch.object(grid_cache, '_may_keep', lambda: True))
        for patch in kernels.patches(self):
            self._patches.enter_context(patch)
        super().__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        from mmposenc.functional import grid_cache
        super().__exit__(*args)
        self._patches.close()
        grid_cache.CACHE.clear()
        _ACTIVE.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, self)

    def tensor(self, x: Tensor, requires_grad: bool = False) -> Tensor:
        """A copy on the device, of which nothing is noted."""
        x = x.detach()
        return StandInTensor(x.clone() if self.values else x.to('meta'), requires_grad)

    def module(self, module: nn.Module) -> nn.Module:
        """A copy with parameters and buffers on the device; other attributes stay where they are,
        as with ``module.cuda()``."""
        module = copy.deepcopy(module)
        for part in module.modules():
            for name, p in part._parameters.items():
                if p is not None:
                    part._parameters[name] = nn.Parameter(self.tensor(p.data), p.requires_grad)
            for name, b in part._buffers.items():
                if b is not None:
                    part._buffers[name] = self.tensor(b)
        return module

    @contextlib.contextmanager
    def autocast(self, dtype: torch.dtype) -> Any:
        """``torch.autocast('cuda', dtype)``, which a CPU build turns off."""
        before = torch.is_autocast_enabled('cuda'), torch.get_autocast_dtype('cuda')
        torch.set_autocast_enabled('cuda', True)
        torch.set_autocast_dtype('cuda', dtype)
        torch.autocast_increment_nesting()
        try:
            yield
        finally:
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
            torch.set_autocast_enabled('cuda', before[0])
            torch.set_autocast_dtype('cuda', before[1])

    def wait(self, what: str) -> None:
        """Note one, with the innermost line of the project, or else of a package but torch."""
        found = ''
        for frame, line in traceback.walk_stack(sys._getframe(1)):
            name = frame.f_code.co_filename
            if '/mmposenc/' in name:
                found = f'{name[name.rindex("/mmposenc/") + 1:]}:{line}'
                break
            if not found and '/torch/' not in name and 'stand_in' not in name:
                found = f'{"/".join(name.split("/")[-3:])}:{line}'
        self.waits.append(Wait(what, found))

    def report(self) -> Counter:
        """How often each line waited, for messages."""
        return Counter(self.waits)


def to_cpu(x: Tensor) -> Tensor:
    """The numbers of a tensor of either device, of which nothing is noted."""
    return x.elem if isinstance(x, StandInTensor) else x.detach()


def _is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == 'cuda'


def _leaves(x: Any) -> Iterator[Any]:
    """Of an operator's arguments: plain lists, tuples and dicts. (torch's own function takes most
    of the time of an operator.)"""
    if isinstance(x, (list, tuple)):
        for each in x:
            yield from _leaves(each)
    else:
        yield x


def _map(function: Callable[[Any], Any], x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)([_map(function, each) for each in x])
    return function(x)


@cache
def _returns_its_arguments(func: Any) -> bool:
    """Whether what comes out is, or is a view of, what went in."""
    return any(each.alias_info is not None for each in func._schema.returns)


def _run(func: Any, args: Any, kwargs: dict[str, Any], gpu: StandIn | None) -> Any:
    """One operator: checked, noted, computed elsewhere."""
    tensors = [x for x in _leaves((args, *kwargs.values())) if isinstance(x, Tensor)]
    ours = any(isinstance(x, StandInTensor) for x in tensors)
    to = kwargs.get('device')
    on_gpu = _is_cuda(to) if to is not None else ours
    if gpu is not None:
        _check(func, args, tensors, ours, on_gpu, gpu)
    if not ours and not on_gpu:
        return func(*args, **kwargs)
    elsewhere = torch.device('cpu' if gpu is None or gpu.values else 'meta')
    inner, *values = _map(lambda x: x.elem if isinstance(x, StandInTensor) else x,
                          (args, *kwargs.values()))
    options = dict(zip(kwargs, values, strict=True))
    if on_gpu and to is not None:
        options['device'] = elsewhere
    if options.get('pin_memory'):
        options['pin_memory'] = False
    out = kernels.run(func, inner, options)
    if not on_gpu:
        return out
    # A copy that was none here must be one.
    if to is not None and not ours and any(out is x for x in tensors):
        out = out.clone()
    wrapped = _map(lambda x: StandInTensor(x.to(elsewhere)) if isinstance(x, Tensor) else x, out)
    return (return_and_correct_aliasing(func, args, kwargs, wrapped)
            if ours and _returns_its_arguments(func) else wrapped)


def _check(func: Any, args: Any, tensors: list[Tensor], ours: bool, on_gpu: bool, gpu: StandIn
           ) -> None:
    if ours and func in WAITS:
        gpu.wait(WAITS[func])
    if ours and func in NOT_DETERMINISTIC and torch.are_deterministic_algorithms_enabled() and (
            'cumsum' not in str(func) or args[0].is_floating_point()):
        raise RuntimeError(f'{func} does not have a deterministic implementation, but you set '
                           f"'torch.use_deterministic_algorithms(True)'")
    if func in INDEXING:
        for index in _leaves(args[1]) if ours else ():
            if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
                gpu.wait('mask as index')
            if isinstance(index, Tensor) and not isinstance(index, StandInTensor):
                gpu.wait('index copied to the GPU')
        return
    if func in (aten._to_copy.default, aten.copy_.default, aten._copy_from.default):
        target, source = isinstance(args[0], StandInTensor), isinstance(args[-1], StandInTensor)
        if func is aten._to_copy.default:
            target, source = on_gpu, target
        if source != target:
            gpu.wait('copy to the host' if source else 'copy to the GPU')
        return
    other = [x for x in tensors if not isinstance(x, StandInTensor) and x.dim() > 0]
    if ours and other:
        raise RuntimeError(f'Expected all tensors to be on the same device, but found cuda:0 and '
                           f'cpu ({func}, CPU tensor of shape {tuple(other[0].shape)})')
