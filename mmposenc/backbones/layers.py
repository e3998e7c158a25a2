"""Parts that backbones share."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention.norms import NORMS
from ..attention.window import PlainWindowAttention
from ..encodings.base import RelativeEncoding, TokenEncoding
from ..encodings.build import EncodingConfig, build_encoding
from ..functional.constants import Constants
from ..functional.grids import GridLike, pair, whole_cells
from ..functional.masking import map_to_tokens, pad_map
from ..functional.tracing import are_plain, is_compiling
from ..functional.windows import WindowLayout
from .mlp import activate, mlp


class DropPath(Constants):
    """Stochastic depth (Huang et al. 2016): in training, drop the residual branch of random images
    and scale the others by 1 / (1 - drop_prob).

    Args:
        drop_prob: probability that an image's branch is dropped, in [0, 1).
    """

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= drop_prob < 1.0:
            raise ValueError(f'drop_prob={drop_prob} must be in [0, 1)')
        # A tensor, so that blocks with different rates share their compiled code.
        self.keep: Tensor
        self._drop_prob, self.drops = drop_prob, drop_prob > 0.0
        self.register_constants()

    def constants(self) -> dict[str, Any]:
        """The probability that a branch is kept."""
        return dict(keep=1.0 - self._drop_prob)

    @property
    def drop_prob(self) -> float:
        """Probability that an image's branch is dropped."""
        return self._drop_prob

    @drop_prob.setter
    def drop_prob(self, drop_prob: float) -> None:
        self._drop_prob, self.drops = drop_prob, drop_prob > 0.0
        self.register_constants(self.keep.device, self.keep.dtype)

    def forward(self, x: Tensor, hw_shape: GridLike | None = None) -> Tensor:
        """(B, ...) -> (B, ...); the grid is not used."""
        if not self.drops or not self.training:
            return x
        keep = self.keep if is_compiling() else 1.0 - self.drop_prob
        stays = torch.rand(x.shape[0], *(1,) * (x.dim() - 1), dtype=x.dtype, device=x.device) < keep
        return x * (stays / keep).to(x.dtype)

    def extra_repr(self) -> str:
        return f'drop_prob={self.drop_prob}'


class PatchEmbed(nn.Module):
    """Split a map into patches and project each to a token, with an optional norm.

    Args:
        in_channels: channels of the map.
        embed_dims: channels of the tokens.
        patch_size: side of a patch, or its rows and columns, in pixels or cells.
        norm_eps: epsilon of the LayerNorm; None: no norm.
        ceil_mode: zero-pad to whole patches; False: drop a last partial patch, as in PVT.
        bias: whether the projection has a bias.
        overlap: overlapping patches of side 2 * patch_size - 1 with zero padding (PVT v2, Sec.
            3.2); their number is that with ``ceil_mode``.
    """

    def __init__(self, in_channels: int, embed_dims: int, patch_size: int | tuple[int, int], *,
                 norm_eps: float | None = 1e-5, ceil_mode: bool = False, bias: bool = True,
                 overlap: bool = False) -> None:
        super().__init__()
        self.patch_size = rows, cols = pair(patch_size)
        self.ceil_mode = ceil_mode or overlap
        reach = (rows - 1, cols - 1) if overlap else (0, 0)
        self.projection = nn.Conv2d(in_channels, embed_dims, (rows + reach[0], cols + reach[1]),
                                    stride=(rows, cols), padding=reach, bias=bias)
        self.norm: nn.Module = (nn.Identity() if norm_eps is None
                                else nn.LayerNorm(embed_dims, eps=norm_eps))

    def out_hw_shape(self, hw_shape: Sequence[int]) -> tuple[int, int]:
        """Grid of tokens of a map (H, W).

        Raises:
            ValueError: the map is smaller than one patch.
        """
        rows, cols = self.patch_size
        if self.ceil_mode:
            return whole_cells(hw_shape[0], rows), whole_cells(hw_shape[1], cols)
        if hw_shape[0] < rows or hw_shape[1] < cols:
            raise ValueError(f'a map of {hw_shape[0]}x{hw_shape[1]} is smaller than one patch of '
                             f'{rows}x{cols}; give a larger image')
        return hw_shape[0] // rows, hw_shape[1] // cols

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Map (B, C, H, W) to tokens (B, H'*W', embed_dims) and their grid (H', W')."""
        height, width = self.out_hw_shape(x.shape[-2:])
        if self.ceil_mode:
            x = pad_map(x, (height * self.patch_size[0], width * self.patch_size[1]))
        tokens: Tensor = self.norm(map_to_tokens(self.projection(x)))
        return tokens, (height, width)


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm of the channels of every cell of a map (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class LayerScale(nn.Module):
    """A learned factor for each channel of a residual branch (CaiT, Touvron et al. 2021, Eq. 5).

    Args:
        embed_dims: channels C.
        init_value: initial value of the factors.
    """

    def __init__(self, embed_dims: int, init_value: float = 1e-5) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((embed_dims,), float(init_value)))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return x * self.gamma


class MLP(nn.Module):
    """Two linear layers over tokens with an activation between them.

    Args:
        embed_dims: channels C.
        hidden_dims: channels of the hidden layer.
        drop: dropout after both layers.
        act: activation, see :func:`~mmposenc.backbones.mlp.activate`; with 'swiglu' ``fc1`` has
            2 * hidden_dims outputs, gates first.
        bias: whether the layers have biases.
        norm: 'layer' or 'rms', the kind of norm.
        norm_eps: epsilon of a norm after the activation (EVA-02); None: no norm.
        pos_encodings: configs of TokenEncodings for the hidden layer, before the activation.
        grid_shape: (H, W) for encodings that need the largest grid.
        num_prefix_tokens: number of tokens before those of the grid.

    Raises:
        ValueError: an encoding changes the grid, or changes only queries and keys.
    """

    def __init__(self, embed_dims: int, hidden_dims: int, drop: float = 0.0, *, act: str = 'gelu',
                 bias: bool = True, norm: str = 'layer',
                 norm_eps: float | None = None, pos_encodings: Sequence[EncodingConfig] = (),
                 grid_shape: GridLike | None = None, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self.act = act
        self.fc1 = nn.Linear(embed_dims, hidden_dims * (2 if act == 'swiglu' else 1), bias)
        self.norm = None if norm_eps is None else NORMS[norm](hidden_dims, eps=norm_eps)
        self.fc2 = nn.Linear(hidden_dims, embed_dims, bias)
        self.drop = nn.Dropout(drop)
        self.num_prefix_tokens = num_prefix_tokens
        # Needed by mypy only: TokenEncoding is abstract, but here it is just compared.
        built = [build_encoding(cfg, TokenEncoding, 'pos_encoding',  # type: ignore[type-abstract]
                                embed_dims=self.fc1.out_features, grid_shape=grid_shape)
                 for cfg in pos_encodings]
        self.pos_encodings = nn.ModuleList(built) if built else None
        for encoding in built:
            if not encoding.keeps_grid or encoding.apply_to == 'qk':
                raise ValueError(f"positions='mlp' with {type(encoding).__name__}"
                                 f'({encoding.extra_repr()}): inside an MLP an encoding keeps the '
                                 f"grid and has apply_to='qkv'")

    def forward(self, x: Tensor, hw_shape: tuple[int, int] | None = None,
                padding_mask: Tensor | None = None) -> Tensor:
        """(B, L, C) -> (B, L, C); encodings need the grid (H, W) and get the mask (B, H, W)."""
        drops = self.drop.p > 0.0 and self.training
        only_layers = not drops and self.norm is None and self.pos_encodings is None
        if only_layers and are_plain(self.fc1, self.fc2, self.drop) and self.fc1.bias is not None:
            return mlp(x, self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias,
                       activation=self.act)
        hidden = self.fc1(x)
        for encoding in self.pos_encodings or ():
            hidden = encoding(hidden, hw_shape, num_prefix_tokens=self.num_prefix_tokens,
                              padding_mask=padding_mask)
        hidden = self.drop(activate(hidden, self.act))
        hidden = hidden if self.norm is None else self.norm(hidden)
        return self.drop(self.fc2(hidden))


def run_block(block: nn.Module, *args: Any, recompute: bool, **kwargs: Any) -> Any:
    """Run a block. With ``recompute``, and if gradients are needed, its activations are computed
    again in the backward pass instead of being stored."""
    if recompute and torch.is_grad_enabled():
        return checkpoint(block, *args, use_reentrant=False, **kwargs)
    return block(*args, **kwargs)


def block_windows(block: Any, hw_shape: Any) -> WindowLayout | None:
    """The windows of a grid, computed outside of compiled code. None for global attention."""
    if not isinstance(getattr(block, 'attn', None), PlainWindowAttention):
        return None
    return block.attn.layout(hw_shape)


def check_sizes(patch_size: int | tuple[int, int], mlp_ratio: float) -> None:
    """Raise ValueError for sizes that are not positive."""
    if min(pair(patch_size)) < 1 or mlp_ratio <= 0:
        raise ValueError(f'patch_size={patch_size} must be at least 1 and mlp_ratio={mlp_ratio} '
                         f'positive')


def init_transformer_weights(module: nn.Module) -> None:
    """Initialise as DeiT, PVT and Twins: linear layers by a truncated normal distribution of
    standard deviation 0.02, norms by 1 and 0, convolutions by a normal distribution of variance
    2 / fan_out. Encodings initialise themselves."""
    for child in module.children():
        if isinstance(child, (TokenEncoding, RelativeEncoding)):
            continue
        init_transformer_weights(child)
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        module.reset_parameters()
    elif isinstance(module, nn.Conv2d):
        fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
        nn.init.normal_(module.weight, 0, math.sqrt(2.0 / (fan_out // module.groups)))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
