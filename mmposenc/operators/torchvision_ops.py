"""torchvision's operators: which of its kernels there are, and all of them where its binary can't
load, such as a CPU torch beside the CUDA build of torchvision."""
import contextlib
import importlib
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

# A Library unregisters what it defined when it is collected, so it has to live here.
_LIBRARY = torch.library.Library('torchvision', 'FRAGMENT')

_ROI = 'Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width'
_SHAPE = 'SymInt batch_size, SymInt channels, SymInt height, SymInt width'
_CONV = ('Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, '
         'SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, '
         'SymInt groups, SymInt offset_groups, bool use_mask')
SCHEMAS = {
    'nms': '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'roi_align': f'(Tensor input, {_ROI}, int sampling_ratio, bool aligned) -> Tensor',
    '_roi_align_backward': f'(Tensor grad, {_ROI}, {_SHAPE}, int sampling_ratio, bool aligned) '
                           '-> Tensor',
    'roi_pool': f'(Tensor input, {_ROI}) -> (Tensor, Tensor)',
    '_roi_pool_backward': f'(Tensor grad, {_ROI.replace(",", ", Tensor argmax,", 1)}, {_SHAPE}) '
                          '-> Tensor',
    'ps_roi_align': f'(Tensor input, {_ROI}, int sampling_ratio) -> (Tensor, Tensor)',
    '_ps_roi_align_backward': f'(Tensor grad, {_ROI.replace(",", ", Tensor channel_mapping,", 1)}, '
                              f'int sampling_ratio, {_SHAPE}) -> Tensor',
    'ps_roi_pool': f'(Tensor input, {_ROI}) -> (Tensor, Tensor)',
    '_ps_roi_pool_backward': f'(Tensor grad, {_ROI.replace(",", ", Tensor channel_mapping,", 1)}, '
                             f'{_SHAPE}) -> Tensor',
    'deform_conv2d': f'({_CONV}) -> Tensor',
    '_deform_conv2d_backward': f'(Tensor grad, {_CONV}) -> '
                               '(Tensor, Tensor, Tensor, Tensor, Tensor)',
    '_cuda_version': '() -> int',
    # Without a form here: quantized and rotated boxes.
    'qnms': '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'qroi_align': '(Tensor input, Tensor rois, float input_scale, int input_zero_point, float '
                  'rois_scale, int rois_zero_point, float spatial_scale, SymInt pooled_height, '
                  'SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor',
    'box_iou_rotated': '(Tensor boxes1, Tensor boxes2) -> Tensor',
}


def provide(extension: ModuleType) -> None:
    """Gives torchvision its operators, where ``torchvision.extension`` could not load them.

    They are registered under its names for every device, and it is told that it has them; its own
    shape functions, autograd and autocast then apply, so that ``torch.compile`` and
    ``torch.export`` see what they always see.
    """
    missing = [name for name in SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    for name in missing:
        _LIBRARY.define(name + SCHEMAS[name])
    if not hasattr(torch.library, 'register_autograd'):
        return  # before torch 2.4: torchvision imports, and its operators say that they are missing
    forms: dict[str, Callable[..., Any]] = importlib.import_module(
        'mmposenc.operators.torchvision_forms').FORMS
    for name in missing:
        _LIBRARY.impl(name, forms.get(name) or without_form(name), 'CompositeExplicitAutograd')
    extension.__dict__['_has_ops'] = lambda: True
    if find_spec('torchvision._autograd_registrations') is None:  # before torchvision 0.28
        for name in missing:
            if f'_{name}_backward' in SCHEMAS:
                register_gradient(name)


def without_form(name: str) -> Callable[..., Any]:
    """An operator that says what it lacks."""
    def missing(*args: Any) -> Any:
        raise NotImplementedError(
            f'torchvision::{name} is not available: the binary of this torchvision does not load '
            'beside this torch, and mmposenc has no PyTorch form of operators on quantized or '
            'rotated boxes. Install the torchvision that was built for this torch '
            '(https://pytorch.org/get-started)')
    return missing


def register_gradient(name: str) -> None:
    """The derivative of an operator by the one that torchvision has for it."""
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        extra = output[1:] if isinstance(output, tuple) else ()
        ctx.inputs, ctx.extra = inputs, extra

    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        operator = getattr(torch.ops.torchvision, f'_{name}_backward')
        if name == 'deform_conv2d':
            return (*operator(grad, *ctx.inputs), *[None] * 9)
        image, rois, *sizes = ctx.inputs
        first, rest = (sizes[:3], sizes[3:]) if name == 'roi_align' else (sizes, [])
        return (operator(grad, rois, *ctx.extra, *first, *image.shape, *rest),
                *[None] * (len(sizes) + 1))

    torch.library.register_autograd(f'torchvision::{name}', backward, setup_context=keep,
                                    lib=_LIBRARY)


def has_kernel(name: str, like: torch.Tensor) -> bool:
    """Whether torchvision's binary has loaded and holds the operator for an accelerator; on a CPU
    this project's own forms follow mmcv's kernels in every tie."""
    if like.device.type in ('cpu', 'meta'):
        return False
    with contextlib.suppress(ImportError, RuntimeError):
        importlib.import_module('torchvision')
    return hasattr(torch.ops.torchvision, name) and (
        torch._C._dispatch_has_kernel_for_dispatch_key(f'torchvision::{name}',
                                                       like.device.type.upper()))
