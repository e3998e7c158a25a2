"""Lets backward passes that have no derivative themselves raise an error that says so."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

#: The context that torch hands to an autograd function, to which a forward pass adds attributes.
AutogradContext: TypeAlias = Any
Backward = Callable[..., tuple[Tensor | None, ...]]


def first_order_only(advice: str) -> Callable[[Backward], Backward]:
    """A decorator of an autograd function's ``backward`` that computes without autograd. Whoever
    differentiates its gradients gets an error.

    torch's ``once_differentiable`` gives this error only if the incoming gradient has a derivative;
    of a constant one, as in a Hessian times a vector, the second derivative would be zero.

    Args:
        advice: what the error says: what has no second derivative, and what to use instead.
    """
    def decorate(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def run(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
            with torch.no_grad():
                grads_of_inputs = backward(ctx, *grads)
            # Without create_graph=True, nobody asks for second derivatives.
            if not torch.is_grad_enabled():
                return grads_of_inputs
            known = [grad for grad in grads_of_inputs if grad is not None]
            sources = [x for x in (*ctx.saved_tensors, *grads) if x is not None]
            refusing = iter(_NoSecondDerivative.apply(  # type: ignore[no-untyped-call]
                advice, len(known), *known, *sources))
            return tuple(None if grad is None else next(refusing) for grad in grads_of_inputs)
        return run
    return decorate


class _NoSecondDerivative(torch.autograd.Function):
    """Returns gradients as they are, and raises an error if they are derived by anything from which
    they were computed."""

    @staticmethod
    def forward(ctx: AutogradContext, advice: str, count: int, *tensors: Tensor
                ) -> tuple[Tensor, ...]:
        ctx.advice = advice
        return tuple(grad.clone() for grad in tensors[:count])

    @staticmethod
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[None, ...]:
        raise RuntimeError(ctx.advice)
