"""Token encodings placed between the blocks of a backbone."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..config_types import ConfigType
from ..functional.extents import MaskLike, cells_of
from ..functional.masking import join_prefix, split_prefix
from .base import TokenEncoding
from .build import EncodingConfig, build_encoding, listed, resolve

EncodingConfigs = EncodingConfig | Sequence[EncodingConfig] | None
#: Where encodings stand: numbers of blocks; 'every' for after each block that is followed by
#: attention; 'mlp' for inside every MLP (:func:`split_between_and_inside`); None for the default of
#: each encoding.
Positions = Sequence[int] | str | None


class PlacedEncodings(nn.Module):
    """The encodings of one stack of blocks, by position: -1 is before the first block, i is after
    block i.

    Args:
        pos_encoding: one config, several (applied in this order at the same position), or None. A
            module that is built already can be at one position only.
        positions: where to place each encoding: block numbers, 'every' (after each block that is
            followed by attention) or None (the default of the class: after block 0 for PEG, before
            it for absolute encodings).
        num_blocks: blocks in the stack.
        followed: whether another stack, such as the next stage, uses the output, so that 'every'
            includes the last block.
        first: the number of the first block in the model, for the ``blocks`` of a config, which
            override ``positions``.
        defaults: arguments that the backbone knows (``embed_dims=``, ``grid_shape=``).

    Raises:
        ValueError: for a position outside [-1, num_blocks - 1] or given twice; for
            ``apply_to='qk'`` after the last block, which no attention follows.
    """

    def __init__(self, pos_encoding: EncodingConfigs, positions: Positions, num_blocks: int, *,
                 followed: bool = False, first: int = 0, **defaults: Any) -> None:
        super().__init__()
        self.num_blocks, self.followed = num_blocks, followed
        self._first = first
        self.at = nn.ModuleDict()
        for cfg in listed(pos_encoding):
            self._build_and_place(cfg, positions, num_blocks, defaults)

    def _build_and_place(self, cfg: EncodingConfig, positions: Positions, num_blocks: int,
                         defaults: ConfigType) -> None:
        module = _build_token_encoding(cfg, defaults)
        places = self._checked_positions(module, positions)
        if isinstance(cfg, nn.Module) and len(places) > 1:
            raise ValueError(f'pos_encoding is a module and positions={places}: it would be shared '
                             f'between positions; give a config dict')
        for index, position in enumerate(places):
            if index:
                module = _build_token_encoding(cfg, defaults)
            if module.apply_to == 'qk' and position == num_blocks - 1:
                raise ValueError(f"positions={places}: apply_to='qk' after the last block "
                                 f'({position}) has no attention to apply to')
            key = _position_key(position)
            if key not in self.at:
                self.at[key] = nn.ModuleList()
            self.at[key].append(module)  # type: ignore[operator]

    def _checked_positions(self, module: TokenEncoding, positions: Positions) -> tuple[int, ...]:
        if module.blocks is not None:
            if not self.followed:
                check_blocks_exist(module.blocks, self._first + self.num_blocks)
            here = range(self._first, self._first + self.num_blocks)
            return tuple(each - self._first for each in module.blocks if each in here)
        wanted = module.default_positions if positions is None else positions
        if wanted == 'every':
            # With 'qk' there is nothing to apply to after the last block of a stack, because no
            # attention follows.
            last = self.followed and module.apply_to == 'qkv'
            return tuple(range(self.num_blocks if last else self.num_blocks - 1))
        if wanted == 'mlp' or module.default_positions == 'mlp':
            raise ValueError(f"{type(module).__name__} is placed inside MLPs (positions='mlp'), "
                             f'which only the backbones PVT, Swin and ViT of mmposenc support')
        if not isinstance(wanted, Sequence) or isinstance(wanted, str):
            raise ValueError(f"positions={wanted!r} must be 'every', or 'mlp', or block numbers")
        _check_positions(tuple(wanted), self.num_blocks)
        return tuple(wanted)

    def encodings(self, position: int) -> list[TokenEncoding]:
        """Encodings at a position, in the order in which they are applied."""
        key = _position_key(position)
        return list(self.at[key]) if key in self.at else []  # type: ignore[call-overload]

    def refuse_unsupported(self, *, query_key: str = '', other_grid: str = '') -> None:
        """Raise ValueError for encodings that the caller does not support.

        Args:
            query_key: the reason why ``apply_to='qk'`` is not supported; '' allows it.
            other_grid: the reason why the grid must not change; '' allows it.
        """
        for encoding in (e for at in range(-1, self.num_blocks) for e in self.encodings(at)):
            if query_key and encoding.apply_to == 'qk':
                raise ValueError(f"pos_encoding with apply_to='qk': {query_key}; use "
                                 f"apply_to='qkv'")
            if other_grid and not encoding.keeps_grid:
                raise ValueError(f'{type(encoding).__name__} changes the grid '
                                 f'({encoding.extra_repr()}), but {other_grid}')

    def forward(self, x: Tensor, hw_shape: tuple[int, int], position: int, *,
                num_prefix_tokens: int = 0, padding_mask: MaskLike | None = None,
                num_queries: int = 0) -> tuple[Tensor, tuple[int, int], MaskLike | None]:
        """Apply the encodings at ``position`` with ``apply_to='qkv'``.

        Args:
            x: tokens (B, L, C).
            hw_shape: their grid (H, W).
            position: after which block; -1: before the first.
            num_prefix_tokens: as in :class:`TokenEncoding`.
            padding_mask: (B, H, W) bool, True = padding, or a ``PaddingMask``.
            num_queries: how many of the prefix tokens, the first, are learned queries. They have no
                positions, and encodings do not get them.

        Returns:
            Tokens, their grid and their padding mask; the last two change only if an encoding
            shrinks the grid.
        """
        for encoding in self.encodings(position):
            if encoding.apply_to == 'qkv':
                cells = cells_of(padding_mask)
                x = _without_queries(encoding, num_queries, x, hw_shape, num_prefix_tokens, cells)
                changed = encoding.out_padding_mask(cells)
                padding_mask = padding_mask if changed is cells else changed
                hw_shape = encoding.out_hw_shape(hw_shape)
        return x, hw_shape, padding_mask

    def out_hw_shape(self, hw_shape: tuple[int, int], position: int | None = None
                     ) -> tuple[int, int]:
        """The grid after the encodings at ``position``, or after those at all positions."""
        positions = range(-1, self.num_blocks) if position is None else (position,)
        for each in positions:
            for encoding in self.encodings(each):
                hw_shape = encoding.out_hw_shape(hw_shape)
        return hw_shape

    def query_key_tokens(self, x: Tensor, hw_shape: tuple[int, int], position: int, *,
                         num_prefix_tokens: int = 0, padding_mask: MaskLike | None = None,
                         num_queries: int = 0) -> Tensor | None:
        """Tokens from which the block after ``position`` computes queries and keys, or None if that
        is its input. Arguments are those of :meth:`forward`."""
        encodings = [e for e in self.encodings(position) if e.apply_to == 'qk']
        for encoding in encodings:
            x = _without_queries(encoding, num_queries, x, hw_shape, num_prefix_tokens,
                                 cells_of(padding_mask))
        return x if encodings else None


def _without_queries(encoding: TokenEncoding, num_queries: int, x: Tensor,
                     hw_shape: tuple[int, int], num_prefix_tokens: int,
                     padding_mask: Tensor | None) -> Tensor:
    queries, x = split_prefix(x, num_queries)
    return join_prefix(queries, encoding(
        x, hw_shape, num_prefix_tokens=num_prefix_tokens - num_queries, padding_mask=padding_mask))


def split_between_and_inside(pos_encoding: EncodingConfigs, positions: Positions
                             ) -> tuple[list[EncodingConfig], Positions, list[EncodingConfig]]:
    """Split encodings into those between blocks, with their positions, and those inside MLPs. The
    latter are all with ``positions='mlp'``, else those whose default position it is.

    Raises:
        ValueError: for an unknown type, and for a module inside MLPs, which blocks would share.
    """
    def is_inside_blocks(cfg: EncodingConfig) -> bool:
        if positions == 'mlp':
            return True
        known = isinstance(cfg, dict) and 'type' in cfg
        kind = resolve(cfg['type'], 'pos_encoding') if known else type(cfg)  # type: ignore[index]
        return getattr(kind, 'default_positions', None) == 'mlp'

    configs = listed(pos_encoding)
    within = [cfg for cfg in configs if is_inside_blocks(cfg)]
    if any(isinstance(cfg, nn.Module) for cfg in within):
        raise ValueError('pos_encoding is a module and would be shared by the MLPs of all blocks; '
                         'give a config dict')
    for cfg in within:
        if 'blocks' in cfg:
            raise ValueError(f'pos_encoding={cfg!r}: what stands inside MLPs takes no blocks')
    return ([cfg for cfg in configs if cfg not in within],
            None if positions == 'mlp' else positions, within)


def check_blocks_exist(blocks: Sequence[int], count: int) -> None:
    """Raise ValueError unless a model of ``count`` blocks has all of these."""
    if max(blocks) >= count:
        raise ValueError(f'blocks={list(blocks)}: the model has the blocks 0 to {count - 1}')


def _build_token_encoding(cfg: EncodingConfig, defaults: ConfigType) -> TokenEncoding:
    # Needed by mypy only: TokenEncoding is abstract, but here it is just compared.
    return build_encoding(cfg, TokenEncoding,  # type: ignore[type-abstract]
                          'pos_encoding', **defaults)


def _position_key(position: int) -> str:
    # Keys of a ModuleDict become names in the state dict: 'before', 'after0', 'after1', ...
    return 'before' if position == -1 else f'after{position}'


def _check_positions(positions: tuple[int, ...], num_blocks: int) -> None:
    wrong = [p for p in positions if not -1 <= p < num_blocks]
    if wrong or len(set(positions)) != len(positions) or not positions:
        raise ValueError(f'positions={positions} must be different numbers from -1 (before the '
                         f'first block) to {num_blocks - 1} (after the last of {num_blocks})')
