"""Several relative encodings in one attention."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from ..functional.grids import GridLike
from .base import RelativeEncoding
from .build import EncodingConfig, build_encoding


class CombinedRPE(RelativeEncoding):
    """The sum of relative encodings: Swin's bias and iRPE, or rotary positions and a bias.

    Args:
        encodings: modules or configs, each a :class:`RelativeEncoding`.
        num_prefix_tokens: tokens in front of the grid, the same for all.
        defaults: what the attention knows (``head_dims``, ``num_heads``, ``window_size``, ...), for
            the configs that take it.

    Logit terms and value terms are added up; rotations are applied one after the other, before any
    logit term sees the queries.

    Raises:
        ValueError: for no encoding at all, a config that does not fit, or a module made for other
            heads or prefix tokens.
    """

    def __init__(self, encodings: Sequence[EncodingConfig], *, num_prefix_tokens: int = 0,
                 **defaults: Any) -> None:
        super().__init__()
        if not encodings:
            raise ValueError(f'encodings={encodings!r} must hold at least one encoding')
        self.num_prefix_tokens = num_prefix_tokens
        self.encodings = nn.ModuleList(
            # mypy: RelativeEncoding is abstract, and is only compared with here.
            build_encoding(cfg, RelativeEncoding,  # type: ignore[type-abstract]
                           f'encodings[{index}]', num_prefix_tokens=num_prefix_tokens, **defaults)
            for index, cfg in enumerate(encodings))
        wanted = dict(defaults, num_prefix_tokens=num_prefix_tokens)
        for name in ('head_dims', 'num_heads', 'num_prefix_tokens'):
            for index, encoding in enumerate(self.encodings):
                found = getattr(encoding, name, None)
                if None not in (found, wanted.get(name)) and found != wanted[name]:
                    raise ValueError(f'encodings[{index}] has {name}={found}, but '
                                     f'{name}={wanted[name]} is required')
            # An attention compares these with its own.
            if name in wanted:
                setattr(self, name, wanted[name])
        self.has_logits = any(e.has_logits for e in self._members())
        self.has_values = any(e.has_values for e in self._members())
        self.has_rotation = any(e.has_rotation for e in self._members())
        self.cellwise = all(e.cellwise for e in self._members())
        self.contextual = any(e.has_logits and e.contextual for e in self._members())

    def _members(self) -> list[RelativeEncoding]:
        return list(self.encodings)  # type: ignore[arg-type]

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """All rotations, in order."""
        for encoding in self._members():
            if encoding.has_rotation:
                q, k = encoding.rotate(q, k, q_grid, k_grid)
        return q, k

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor | None:
        """Sum of the logit terms, (B or 1, heads, Lq, Lk)."""
        return _add(encoding.logits(q, k, q_grid, k_grid) for encoding in self._members()
                    if encoding.has_logits)

    def values(self, attn: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor | None:
        """Sum of the value terms, (B, heads, Lq, head_dims)."""
        return _add(encoding.values(attn, q_grid, k_grid) for encoding in self._members()
                    if encoding.has_values)

    def reset_parameters(self) -> None:
        """Reset every encoding."""
        for encoding in self._members():
            encoding.reset_parameters()

    def position_tables(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Tables of every encoding."""
        for index, encoding in enumerate(self._members()):
            for name, table in encoding.position_tables():
                yield f'encodings.{index}.{name}', table


def _add(terms: Iterator[Tensor | None]) -> Tensor | None:
    total: Tensor | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total
