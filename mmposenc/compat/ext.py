"""Stands in for ``mmcv._ext`` where mmcv was installed without compiled operators.

The operators that most models of mmdet and mmseg need run in pure PyTorch. Every other one can be
imported, and raises an error that names the remedy when it is called (:mod:`.missing`).
"""
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import deform_attn, focal_loss, nms, roi_align
from .missing import operator_that_raises

NOT_COMPILED = 'not compiled (mmposenc.compat)'

#: For each module, the operators that it has; they are called as mmcv's operators are.
_FORMS: dict[ModuleType, str] = {
    deform_attn: 'ms_deform_attn_forward ms_deform_attn_backward',
    focal_loss: 'sigmoid_focal_loss_forward sigmoid_focal_loss_backward',
    nms: 'nms',
    roi_align: 'roi_align_forward roi_align_backward',
}
OPS: dict[str, Callable[..., Any]] = {
    name: getattr(module, name) for module, names in _FORMS.items() for name in names.split()}
OPS.update(dict.fromkeys(('get_compiler_version', 'get_compiling_cuda_version'),
                         lambda: NOT_COMPILED))


def get_op(name: str) -> Callable[..., Any]:
    """Return the operator called ``name``, as attribute access on the module does.

    Raises:
        AttributeError: for names that start with an underscore, which no operator does.
    """
    if name.startswith('_'):
        raise AttributeError(f"module 'mmcv._ext' has no attribute {name!r}")
    return OPS.get(name) or operator_that_raises(name)
