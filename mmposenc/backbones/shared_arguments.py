"""The arguments that all backbones take, in one record that constructors hand down."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..config_types import ConfigType
from ..encodings.base import RelativeConfig
from ..encodings.build import EncodingConfig
from ..encodings.placement import (
    EncodingConfigs,
    PlacedEncodings,
    Positions,
    split_between_and_inside,
)
from ..functional.grids import as_grid


@dataclass(frozen=True, kw_only=True)
class SharedArguments:
    """The arguments that every backbone takes in addition to its own. No model keeps the record:
    an encoding that is given as a module has one owner.

    Args:
        in_channels: channels of the image.
        img_size: side or (H, W), in pixels, of the image that learned tables are created for.
        pos_encoding: a TokenEncoding config, a list of them, or None; each stage gets its own.
            ``dict(type='mmposenc.LearnedPositionEmbedding')`` is the table of DeiT (with
            ``interpolation='bilinear'`` that of PVT), ``dict(type='mmposenc.PEG')`` is CPVT's.
        positions: where ``pos_encoding`` is applied in each stage: -1 before the first block, i
            after block i; 'every': after all blocks except the last of the model; 'mlp': between
            the two layers of every MLP; None: the usual place of each encoding (PEG: after block
            0; ConvMLP: always 'mlp').
        rel_pos_encoding: a RelativeEncoding config for every attention, a list of them to be
            summed, or None.
        rel_pos_sharing: 'layer': each attention has its own encoding; 'stage': the blocks of a
            stage share one; 'all': all blocks share one, and must have the same heads and sizes.
            (iRPE's "shared" means one table for all heads of an attention: ``shared_heads``.)
        drop_rate, attn_drop_rate, drop_path_rate: dropout rates of outputs, of attention weights,
            and of residual branches (stochastic depth, rising from 0 over the blocks).
        implementation: how attention is computed, see :func:`mmposenc.attention.attend`.
        frozen_stages: number of stages (ViT: blocks) that are not trained; -1 trains all. An
            encoding that they share with later stages is trained.
        trainable: parts of names of parameters that are trained although their stage is frozen,
            such as 'pos_encodings.at.after0' or 'rel_pos_encoding'.
        with_cp: recompute blocks in the backward pass to save memory.
        mask_padding: mask the padding of a batch: on valid cells the maps of an image equal those
            of the image alone; other cells are zero. The images' sizes must be known:
            ``forward(x, img_shapes)``, or
            ``data_preprocessor=dict(type='mmposenc.DetDataPreprocessor')``. False, as in mmdet, by
            default.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)`` loads files of this project and those
            of docs/weights.md; a file that does not fit is an error unless ``strict=False``.

    Raises:
        ValueError: a rate or ``trainable`` is no such value.
    """

    in_channels: int = 3
    img_size: int | tuple[int, int] = 224
    pos_encoding: EncodingConfigs = None
    positions: Positions = None
    rel_pos_encoding: RelativeConfig | None = None
    rel_pos_sharing: str = 'layer'
    drop_rate: float = 0.0
    attn_drop_rate: float = 0.0
    drop_path_rate: float = 0.1
    implementation: str = 'auto'
    frozen_stages: int = -1
    trainable: Sequence[str] = ()
    with_cp: bool = False
    mask_padding: bool = False
    init_cfg: ConfigType | None = None

    def __post_init__(self) -> None:
        for name in ('drop_rate', 'attn_drop_rate', 'drop_path_rate'):
            rate = getattr(self, name)
            if not 0.0 <= rate < 1.0:
                raise ValueError(f'{name}={rate} must be in [0, 1)')
        check_are_sequences(trainable=self.trainable)

    @property
    def image_hw(self) -> tuple[int, int]:
        """``img_size`` as height and width."""
        size = self.img_size
        return as_grid(size if isinstance(size, Sequence) else (size, size), 'img_size').hw

    @cached_property
    def _places(self) -> tuple[EncodingConfigs, Positions, list[EncodingConfig]]:
        return split_between_and_inside(self.pos_encoding, self.positions)

    @property
    def mlp_encodings(self) -> list[EncodingConfig]:
        """Configs of the encodings inside every MLP."""
        return self._places[2]

    def placed_encodings(self, num_blocks: int, **known: Any) -> PlacedEncodings:
        """Build the token encodings of a stack of blocks; ``known`` are sizes that encodings may
        ask for."""
        return PlacedEncodings(*self._places[:2], num_blocks, **known)

    @property
    def attention(self) -> dict[str, Any]:
        """The arguments that every attention of the backbone gets."""
        return dict(rel_pos_encoding=self.rel_pos_encoding, attn_drop=self.attn_drop_rate,
                    implementation=self.implementation)

    def drop_paths(self, count: int) -> list[float]:
        """The rate of stochastic depth of each block, rising evenly from 0."""
        # Computed in Python: torch.linspace would be on the meta device when a model is built
        # there.
        return [self.drop_path_rate * index / max(count - 1, 1) for index in range(count)]


def check_are_sequences(**arguments: object) -> None:
    """Raise ValueError if a single number or a name stands where several are expected: each letter
    of a name would count as one."""
    for name, value in arguments.items():
        if value is not None and (isinstance(value, str) or not isinstance(value, Sequence)):
            raise ValueError(f'{name}={value!r} must be a list or tuple, such as [{value!r}]')
