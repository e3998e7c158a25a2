"""Recording a model by one example: refused, for the record would be wrong at other sizes."""
from __future__ import annotations

import torch
import torch.jit._trace


def refuse_tracing() -> None:
    """Raise where ``torch.jit.trace`` or the TorchScript exporter records a model.

    They keep the numbers of one example: which tokens meet, how far they are apart, how the work
    was cut. At other sizes the result is wrong, and nothing says so. (What counts operations of one
    pass, such as mmengine's ``get_model_complexity_info``, records too, and may: nothing of it is
    run.)

    Raises:
        RuntimeError: while one of them records.
    """
    if not torch.jit.is_tracing():  # type: ignore[no-untyped-call]
        return
    if torch.onnx.is_in_onnx_export() or torch.jit._trace._trace_module_map is not None:
        raise RuntimeError(
            'torch.jit.trace and torch.onnx.export(dynamo=False) keep the numbers of one example, '
            'and are wrong at other sizes; use torch.export, torch.onnx.export(dynamo=True) or '
            '`mmposenc export` (docs/export.md)')
