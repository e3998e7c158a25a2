"""What a plain vision transformer returns: maps of blocks, or pooled tokens."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..functional.masking import masked_mean, tokens_to_map
from .vit_layers import SAMNeck


class ViTOutput:
    """Gives :class:`~mmposenc.backbones.ViT` its last norms and its neck, and what they make of
    tokens."""

    num_prefix_tokens: int
    blocks: nn.ModuleList
    dist_token: nn.Parameter | None

    def _make_output(self, embed_dims: int, num_layers: int, pool: str | None,
                     out_indices: Sequence[int] | None, final_norm: bool | str, norm_eps: float,
                     neck_channels: int | None) -> None:
        """Set ``pool`` and ``out_indices``, and make ``norm``, ``fc_norm`` and ``neck``."""
        if out_indices is None and pool is None:
            out_indices = (num_layers - 1,)
        self.pool = pool
        self.out_indices = None if out_indices is None else tuple(sorted(set(out_indices)))
        self._last = num_layers - 1 if self.out_indices is None else max(self.out_indices)
        self._normed = tuple(range(num_layers)) if final_norm == 'every' else (
            (num_layers - 1,) if final_norm is True else ())
        has_norm = final_norm == 'every' or self._last in self._normed
        self.norm = nn.LayerNorm(embed_dims, eps=norm_eps) if has_norm else None
        norms_mean = final_norm == 'pooled' and self.out_indices is None
        self.fc_norm = nn.LayerNorm(embed_dims, eps=norm_eps) if norms_mean else None
        self.neck = None if neck_channels is None else SAMNeck(embed_dims, neck_channels)

    def _map(self, tokens: Tensor, hw_shape: tuple[int, int], mask: Tensor | None, index: int
             ) -> Tensor:
        tokens = tokens[:, self.num_prefix_tokens:]
        if self.norm is not None and index in self._normed:
            tokens = self.norm(tokens)
        # contiguous: without the prefix tokens the rest is no view of whole rows.
        out = tokens_to_map(tokens.contiguous(), hw_shape)
        if self.neck is not None and index == len(self.blocks) - 1:
            out = self.neck(out, mask)
        return out if mask is None else out.masked_fill(mask[:, None], 0)

    def _pool(self, tokens: Tensor, mask: Tensor | None) -> Any:
        if self.fc_norm is not None:
            return self.fc_norm(masked_mean(tokens[:, self.num_prefix_tokens:], mask))
        assert self.norm is not None
        if self.pool == 'gap':
            return masked_mean(self.norm(tokens[:, self.num_prefix_tokens:]), mask)
        normed = self.norm(tokens[:, :2])
        return normed[:, 0] if self.dist_token is None else (normed[:, 0], normed[:, 1])


def check_output(num_layers: int, pool: str | None, out_indices: Sequence[int] | None,
                 final_norm: bool | str, neck_channels: int | None) -> None:
    """Raise ValueError for a norm or a neck that does not fit to what is returned."""
    if final_norm not in (True, False, 'every', 'pooled'):
        raise ValueError(f"final_norm={final_norm!r} must be True, False, 'every' or 'pooled'")
    pooled = out_indices is None and pool is not None
    if pooled and pool == 'cls' and final_norm == 'pooled':
        raise ValueError("final_norm='pooled' with pool='cls': it is the norm of the mean of "
                         "pool='gap'; use final_norm=True")
    if pooled and not final_norm:
        raise ValueError(f'final_norm=False with pool={pool!r}: what is pooled is normed; use '
                         f'out_indices for maps that are not')
    if neck_channels is None:
        return
    if neck_channels < 1:
        raise ValueError(f'neck_channels={neck_channels} must be at least 1, or None')
    if pooled or (out_indices is not None and num_layers - 1 not in out_indices):
        raise ValueError(f'neck_channels={neck_channels} with out_indices={out_indices}: the neck '
                         f"takes the last block's map; put {num_layers - 1} into out_indices")
