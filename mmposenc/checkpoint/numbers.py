"""Checks that weights are numbers, and that a model has those of its file."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .rules import names_text


def check_numbers(state_dict: Mapping[str, Tensor], file: str,
                  model: Mapping[str, Tensor] | None = None) -> None:
    """Refuse tensors that would be copied and then be wrong: quantized ones, those without numbers
    or of another kind, and ones that are not finite after a training that failed.

    Args:
        state_dict: the weights.
        file: its name, for the message.
        model: the weights into which they are copied; those of other names or shapes are not
            looked at. None: all must be finite floating-point numbers.

    Raises:
        ValueError: naming every tensor that does not hold such numbers.
    """
    wrong = []
    for name, value in state_dict.items():
        here = None if model is None else model.get(name)
        fits = here is not None and here.shape == getattr(value, 'shape', here.shape)
        if (model is None or fits) and (reason := _reason_against(value, here)):
            wrong.append(f'{name} ({reason})'.replace('torch.', ''))
    if wrong:
        kind = 'floating-point numbers' if model is None else "numbers of the model's types"
        raise ValueError(f'{file}: finite {kind} are required; others are in {names_text(wrong)}')


def _reason_against(value: Tensor, here: Tensor | None) -> str:
    """Why a tensor cannot be copied into a weight, or into any of floating-point numbers; '' if
    it can."""
    if not isinstance(value, Tensor):
        return f'{type(value).__name__}, no tensor'
    if value.is_meta:
        return 'no values: it is on the meta device'
    if value.layout != torch.strided or value.is_quantized or value.is_nested:
        return f'{value.layout}, {value.dtype}'
    dtype = torch.float64 if here is None else here.dtype
    numbers = value.to(dtype)
    # Whoever averages or halves a whole file makes its counters floating-point numbers, too.
    if _kind(dtype) == 'integer' and torch.equal(numbers.to(value.dtype), value):
        return ''
    if _kind(value.dtype) != _kind(dtype) or _kind(dtype) == 'integer':
        return f'{value.dtype}' if here is None else f'{value.dtype}, here {dtype}'
    if numbers.abs().sum(dtype=torch.float64).isfinite():
        return ''
    # A mask of the model itself may be infinite.
    known = here is not None and not here.is_meta and torch.equal(
        here.isfinite(), numbers.isfinite().to(here.device))
    return '' if known else 'NaN or infinite'


def _kind(dtype: torch.dtype) -> str:
    return ('floating-point' if dtype.is_floating_point else 'complex' if dtype.is_complex
            else 'integer')


@contextmanager
def copying(model: nn.Module, state_dict: Mapping[str, Tensor], file: str) -> Iterator[None]:
    """A context in which weights are copied into a model. Before, they are checked; after it, the
    model must have their numbers under all names and shapes that it shares with them.

    Raises:
        ValueError: it has not; the weights are named.
    """
    check_numbers(state_dict, file, model.state_dict())
    yield
    wrong = [name for name, here in model.state_dict().items()
             if name in state_dict and here.shape == state_dict[name].shape
             and (here.is_meta or not torch.equal(here, state_dict[name].to(here)))]
    if wrong:
        raise ValueError(f'{file}: the model does not have the numbers of the file in '
                         f'{names_text(wrong)}. It is on the meta device, or it has one weight '
                         'under several names, for which the file has different numbers')


def copy_weights(model: nn.Module, state_dict: Mapping[str, Tensor], file: str) -> None:
    """Copy weights into a model; names that it lacks are left to the hooks of its modules.

    Raises:
        ValueError: a weight cannot be copied, or was not.
    """
    try:
        with copying(model, state_dict, file):
            model.load_state_dict(state_dict, strict=False)
    except RuntimeError as error:
        raise ValueError(f'{file} cannot be copied into the model: {error}') from error
