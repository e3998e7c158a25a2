"""What token encodings add to the tokens, noted while a model runs."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mmposenc.encodings.base import TokenEncoding
from mmposenc.functional.grids import as_grid
from mmposenc.functional.masking import split_prefix

from .maps import Array
from .watching import watched


@dataclass
class TokenRecord:
    """What one token encoding added in the first image.

    name: of the module. hw_shape: (H, W). added: (H * W, C), its output minus its input.
    """

    name: str
    hw_shape: tuple[int, int]
    added: Array


@contextmanager
def record_contributions(model: nn.Module) -> Iterator[list[TokenRecord]]:
    """Record what every token encoding that runs inside ``model`` adds to the tokens.

    Yields:
        The list that records are added to, in the order in which the encodings run. Those that
        change the grid add nothing and are left out.
    """
    records: list[TokenRecord] = []

    def note(name: str, module: TokenEncoding, given: dict[str, Any], out: Tensor) -> None:
        grid = as_grid(given['hw_shape'])
        before, after = (split_prefix(x[:1].detach(), given.get('num_prefix_tokens', 0))[1]
                         for x in (given['x'], out))
        if before.shape == after.shape:
            added = (after - before)[0].float().cpu().numpy()
            records.append(TokenRecord(name, grid.hw, added))

    # mypy: TokenEncoding is abstract, and is only compared with.
    with watched(model, TokenEncoding, note):  # type: ignore[type-abstract]
        yield records
