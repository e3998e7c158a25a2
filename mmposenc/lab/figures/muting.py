"""A model run as if it had no position encodings."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from mmposenc.encodings.base import TokenEncoding

from .watching import is_attention


def can_leave_out(model: nn.Module) -> bool:
    """Whether there are encodings, and the model runs without them: all keep the grid."""
    tokens = [module for module in model.modules() if isinstance(module, TokenEncoding)]
    relative = any(is_attention(module) and module.rel_pos_encoding is not None
                   for module in model.modules())
    return (bool(tokens) or relative) and all(module.keeps_grid for module in tokens)


@contextmanager
def without_encodings(model: nn.Module) -> Iterator[None]:
    """Leave out every token encoding and every relative encoding of ``model``, same weights.

    It is not the model that its authors would have trained without encodings: what was learned
    with them stays.

    Raises:
        ValueError: for an encoding that changes the grid, behind which the model would not fit.
    """
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, TokenEncoding):
                if not module.keeps_grid:
                    raise ValueError(f'{name} ({type(module).__name__}) changes the grid, so the '
                                     f'model does not run without it; compare it with a model of '
                                     f'another config')
                # The tokens come out as they went in.
                stack.callback(module.register_forward_hook(lambda _, args, out: args[0]).remove)
            elif is_attention(module) and module.rel_pos_encoding is not None:
                stack.callback(setattr, module, 'rel_pos_encoding', module.rel_pos_encoding)
                module.rel_pos_encoding = None
        yield
