"""Several relative encodings in one attention."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from ..attention.terms import Term
from ..functional.grids import Grid, GridLike
from .base import RelativeEncoding, Rotation
from .build import EncodingConfig, build_encoding


class CombinedRPE(Rotation):
    """The sum of several relative encodings, such as Swin's bias and iRPE.

    Args:
        encodings: modules or configs, each a :class:`RelativeEncoding`.
        num_prefix_tokens: tokens in front of the grid, the same for all.
        defaults: arguments that the attention module knows (``head_dims``, ``num_heads``,
            ``window_size``, ...), for the configs that accept them.

    Rotations are applied one after the other, before any term uses the queries.

    Raises:
        ValueError: for an empty list, a bad config, or a module made for another number of heads
            or prefix tokens.
    """

    def __init__(self, encodings: Sequence[EncodingConfig], *, num_prefix_tokens: int = 0,
                 **defaults: Any) -> None:
        super().__init__()
        if not encodings:
            raise ValueError(f'encodings={encodings!r} must hold at least one encoding')
        self.num_prefix_tokens = num_prefix_tokens
        self.encodings = nn.ModuleList(
            # Needed by mypy only: RelativeEncoding is abstract, but here it is just compared.
            build_encoding(cfg, RelativeEncoding,  # type: ignore[type-abstract]
                           f'encodings[{index}]', num_prefix_tokens=num_prefix_tokens, **defaults)
            for index, cfg in enumerate(encodings))
        # The attention module compares these sizes with its own.
        for name in {'head_dims', 'num_heads'} & set(defaults):
            setattr(self, name, defaults[name])
        self.only_rotates = all(e.only_rotates for e in self._combined_encodings())
        self.cellwise = all(e.cellwise for e in self._combined_encodings())
        self.takes_frames = all(e.takes_frames for e in self._combined_encodings())

    def _combined_encodings(self) -> list[RelativeEncoding]:
        return list(self.encodings)  # type: ignore[arg-type]

    def _rotations(self) -> list[Rotation]:
        return [each.rotation for each in self._combined_encodings() if each.rotation is not None]

    @property
    def rotation(self) -> Rotation | None:  # type: ignore[override]
        """The encoding itself, if one of the encodings rotates."""
        return self if self._rotations() else None

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys by every encoding, in order."""
        for rotation in self._rotations():
            q, k = rotation.rotate(q, k, q_grid, k_grid)
        return q, k

    def turn_values(self, v: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Turn the values by every encoding, in order."""
        for rotation in self._rotations():
            v = rotation.turn_values(v, q_grid, k_grid)
        return v

    def turn_back(self, out: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Turn the output back by every encoding, the last one first."""
        for rotation in reversed(self._rotations()):
            out = rotation.turn_back(out, q_grid, k_grid)
        return out

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """The terms of all encodings together."""
        return [term for encoding in self._combined_encodings()
                for term in encoding.terms(q_grid, k_grid, tokens)]

    def start_at_zero(self) -> None:
        """Make every encoding add nothing."""
        for encoding in self._combined_encodings():
            encoding.start_at_zero()

    def relative_tables(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Tables of every encoding."""
        for index, encoding in enumerate(self._combined_encodings()):
            for name, table in encoding.relative_tables():
                yield f'encodings.{index}.{name}', table

