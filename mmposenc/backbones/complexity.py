"""Counts the multiply-accumulates of a model without computing its outputs."""
from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from ..attention.terms import Term
from ..encodings.context_pool import ContextPool
from ..encodings.irpe import IRPE
from ..functional.grids import Grid


def multiply_accumulates(run: Callable[[], object], inside: Sequence[nn.Module] = ()
                         ) -> tuple[int, int]:
    """Count the multiply-accumulates of matrix products and convolutions by torch's counter.

    Fused attention runs as two products, so that it counts the same on every device.

    Args:
        run: runs a model once, whose parameters take no gradients: torch's counter fails on some
            that do.
        inside: modules of which the share is wanted; none of them inside another.

    Returns:
        The number of all, and of those inside the modules; norms, activations, sums and softmax
        count zero.
    """
    # Imported here, because torch before 2.3 has no sdpa_kernel.
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # Only a CPU uses this operator, and torch has no formula for its operations.
    pointwise = getattr(torch.ops.mkldnn, '_linear_pointwise', None)
    counter = FlopCounterMode(display=False, custom_mapping=(
        {} if pointwise is None else {pointwise: _linear_flops}))
    counter.mod_tracker = _NoModuleTracker()  # type: ignore[assignment]
    starts, shares = [0], [0]

    def begin(*_: object) -> None:
        starts.append(counter.get_total_flops())

    def end(*_: object) -> None:
        shares.append(counter.get_total_flops() - starts.pop())

    with ExitStack() as stack:
        for module in inside:
            stack.callback(module.register_forward_pre_hook(begin).remove)
            stack.callback(module.register_forward_hook(end, always_call=True).remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(counter)
        run()
    return counter.get_total_flops() // 2, sum(shares) // 2


class _NoModuleTracker:
    """Replaces torch's tracker of modules. That one sets hooks on every module, and modules with
    hooks would be computed in another way here, one by one."""

    parents = frozenset(('Global',))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _linear_flops(x_shape: Sequence[int], *_: object, out_shape: Sequence[int], **__: object
                  ) -> int:
    return 2 * math.prod(out_shape) * x_shape[-1]


def count_macs(model: nn.Module, hw_shape: tuple[int, int], *, in_channels: int = 3,
               values_as_released: bool = False, pooled_means: bool = True) -> int:
    """Count multiply-accumulates of matrix products and convolutions for one image (the "FLOPs" of
    the papers' tables).

    Relative encodings are counted by their definition, whatever the implementation; iRPE's 'cross'
    counts as one table of all pairs of a row and a column bucket.

    Args:
        model: a model that takes (1, in_channels, H, W). Its weights are not used; it may be on the
            meta device.
        hw_shape: (H, W) of the image in pixels.
        in_channels: channels of the image.
        values_as_released: count iRPE on values as in its paper and release: a vector for each
            pair of tokens, Lq * Lk * embed_dims in each attention. This project sums attention
            weights by bucket first, which takes Lq * buckets * embed_dims.
        pooled_means: count the means of a ContextPool with weights by token as a product, L * L *
            embed_dims. The paper's table does not include them (docs/context_pool.md).

    Returns:
        The number; norms, activations, sums and softmax count zero.
    """
    counted = copy.deepcopy(model).to('meta').eval().requires_grad_(False)
    extra = [0]
    for module in counted.modules():
        if values_as_released and isinstance(module, IRPE) and 'v' in module.rpe_on:
            _watch_values(module, extra)
        if not pooled_means and isinstance(module, ContextPool) and module.weights != 'nonlocal':
            module._pooled_by_locality = _no_mean  # type: ignore[method-assign, assignment]
    image = torch.empty(1, in_channels, *hw_shape, device='meta')
    return multiply_accumulates(lambda: counted(image))[0] + extra[0]


def _no_mean(x: Tensor, *args: object) -> Tensor:
    """Replaces :meth:`ContextPool._pooled_by_locality` by a function that computes no means."""
    return x


def _watch_values(encoding: IRPE, extra: list[int]) -> None:
    """Append to ``extra`` how many more multiply-accumulates the released form of a term on values
    takes."""
    terms = encoding.terms

    def recording_terms(q_grid: Grid, k_grid: Grid) -> list[Term]:
        return [_AsReleased(each, encoding, extra) if each.on_values else each
                for each in terms(q_grid, k_grid)]

    encoding.terms = recording_terms  # type: ignore[method-assign]


class _AsReleased(Term):
    """A term on values that also records the multiply-accumulates of the released form."""

    on_values = True

    def __init__(self, term: Term, encoding: IRPE, extra: list[int]) -> None:
        self.term, self.encoding, self.extra = term, encoding, extra

    def output_of_weights(self, weights: Tensor) -> Tensor:
        """The output of the term itself; the additional operations of the released form are
        recorded."""
        batch, heads, queries, keys = weights.shape
        out = self.term.output_of_weights(weights)
        released = sum(batch * heads * queries * keys * table.shape[-1]
                       for table in self.encoding.tables_of_side('v'))
        buckets = vars(self.term)['buckets'].num_all
        self.extra[0] += released - batch * heads * queries * buckets * out.shape[-1]
        return out
