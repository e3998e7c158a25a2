"""Records which operators a model runs in which module, and counts their multiply-accumulates."""
from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


def _linear(x: Tensor, *_: Any, out_val: Tensor, **__: Any) -> int:
    return 2 * out_val.numel() * x.shape[-1]


#: torch's formulas, and one for an operator that only a CPU uses.
FORMULAS = dict(flop_registry)
if hasattr(torch.ops.mkldnn, '_linear_pointwise'):
    FORMULAS[torch.ops.mkldnn._linear_pointwise] = _linear

#: Operators that count zero in the papers and that torch does not mark as elementwise: norms,
#: activations, softmax, sums, comparisons, pooling, fills, copies, gathers and scatters.
UNCOUNTED_BY_CONVENTION = frozenset(
    """_log_softmax _softmax _to_copy all amax amin any arange argmax argmin argsort bernoulli
    bernoulli_ cat clone constant_pad_nd contiguous copy_ cumsum detach empty empty_like
    empty_strided eye fill_ flip full full_like gather index index_put index_put_ index_select
    lift_fresh linspace max mean min native_batch_norm native_dropout native_group_norm
    native_layer_norm new_empty new_empty_strided new_full new_ones new_zeros nonzero one_hot
    ones ones_like prod rand rand_like randint randn randperm repeat roll scalar_tensor scatter
    scatter_ select_scatter slice_scatter sort stack std sum topk tril triu unique_consecutive var
    var_mean _native_batch_norm_legit_no_training _native_batch_norm_legit
    _batch_norm_no_update cudnn_batch_norm linalg_vector_norm _assert_async
    _local_scalar_dense _unsafe_view zero_ zeros zeros_like _unique2 masked_select
    bitwise_and bitwise_not bitwise_or _unsafe_index gelu_ max_pool2d_with_indices avg_pool2d
    _adaptive_avg_pool2d upsample_nearest2d _safe_softmax floor_divide masked_fill_
    repeat_interleave""".split())


class OperatorCounter(TorchDispatchMode):
    """A context that counts the operators of a model's forward pass.

    Matrix products and convolutions are counted by torch's formulas; a multiplication and an
    addition count as one. Activations are the elements of their outputs: RegNet's definition for
    convolutions, extended to matrix products. Fused attention runs as two products, so that its
    logits count as activations on every device.

    Args:
        model: counts are named by its modules.

    Attributes:
        macs: number by name of the innermost module ('' is the model itself).
        activations: number by name of the innermost module.
        by_convention: calls, by module and operator, of operators that count zero in the papers.
        uncounted: calls of other operators without a formula.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.macs: Counter[str] = Counter()
        self.activations: Counter[str] = Counter()
        self.by_convention: Counter[tuple[str, str]] = Counter()
        self.uncounted: Counter[tuple[str, str]] = Counter()
        self._model, self._inside, self._hooks = model, [''], []  # type: ignore[var-annotated]
        self._unfused = sdpa_kernel(SDPBackend.MATH)

    def __enter__(self) -> OperatorCounter:
        for name, module in self._model.named_modules():
            self._hooks += [
                module.register_forward_pre_hook(lambda *_, name=name: self._inside.append(name)),
                module.register_forward_hook(lambda *_: self._leave(), always_call=True)]
        self._unfused.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._unfused.__exit__(*error)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _leave(self) -> None:
        self._inside.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, 'overloadpacket', func)
        if packet not in FORMULAS and hasattr(func, 'decompose'):
            with _Mode(self):
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        out = func(*args, **kwargs)
        self._count(func, packet, out, args, kwargs)
        return out

    def _count(self, func: Any, packet: Any, out: Any, args: Any, kwargs: Any) -> None:
        if packet in FORMULAS:
            flops = FORMULAS[packet](*args, **kwargs, out_val=out)
            self.macs[self._inside[-1]] += int(flops) // 2
            first = next(leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
            self.activations[self._inside[-1]] += first.numel()
            return
        name = str(getattr(packet, '__name__', packet))
        if getattr(func, 'is_view', False) or not any(
                isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs, out))):
            return
        if torch.Tag.pointwise in getattr(func, 'tags', ()) or (
                func.namespace == 'aten' and name in UNCOUNTED_BY_CONVENTION):
            self.by_convention[self._inside[-1], name] += 1
        else:
            self.uncounted[self._inside[-1], f'{func.namespace}.{name}'] += 1


class _Mode(TorchDispatchMode):
    """Passes operators to an :class:`OperatorCounter` without activating it again."""

    def __init__(self, counter: OperatorCounter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.counter.__torch_dispatch__(func, types, args, kwargs)
