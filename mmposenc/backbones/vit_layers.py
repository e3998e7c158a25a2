"""The block of the plain vision transformer, SAM's neck, and checks of arguments."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

from ..attention.conv_projection import ConvProjectionAttention
from ..attention.multihead import MultiheadAttention
from ..attention.norms import NORMS
from ..attention.window import PlainWindowAttention, window_size_or_count
from ..encodings.build import EncodingConfig
from ..encodings.checks import check_at_least, check_choices
from ..encodings.placement import PlacedEncodings
from ..functional.extents import MaskLike, cells_of
from ..functional.windows import WindowLayout
from .layers import MLP, DropPath, LayerNorm2d, LayerScale
from .mlp import ACTIVATIONS

MLPS = ('mlp', 'swiglu')
#: Initial values of LayerScale of attention and MLP, or one for both; None: no LayerScale.
LayerScales: TypeAlias = float | Sequence[float | None] | None


class ViTBlock(nn.Module):
    """x + scale1 * attention(norm(x)), then x + scale2 * mlp(norm(x)).

    Args:
        embed_dims, num_heads, hidden_dims: sizes; ``hidden_dims`` is that of the MLP.
        drop, drop_path: dropout rates of the outputs and of residual branches.
        norm, norm_eps: kind, 'layer' or 'rms', and epsilon of all norms.
        layer_scale_init_value: initial value of the two scales, or a pair of them; None: no scale.
        act: activation of the MLP, see :class:`~mmposenc.backbones.layers.MLP`.
        attn_norm, mlp_norm: norms inside attention and MLP, before their last layers (EVA-02);
            'qk': norms of queries and keys.
        mlp_bias: whether the layers of the MLP have biases.
        conv_projection: use :class:`~mmposenc.attention.ConvProjectionAttention`.
        windows: arguments of :class:`~mmposenc.attention.PlainWindowAttention`; None: attend to the
            whole grid.
        mlp_encodings: configs of encodings inside the MLP.
        attention: further arguments of :class:`~mmposenc.attention.MultiheadAttention`.
    """

    # torch.compile treats this class as one unit, see engine/training/compiling.py.
    is_region = True

    def __init__(self, embed_dims: int, num_heads: int, hidden_dims: int, *, drop: float = 0.0,
                 drop_path: float = 0.0, norm: str = 'layer', norm_eps: float = 1e-6,
                 layer_scale_init_value: LayerScales = None, act: str = 'gelu',
                 attn_norm: bool | str = False, mlp_norm: bool = False, mlp_bias: bool = True,
                 conv_projection: bool = False,
                 windows: Mapping[str, Any] | None = None,
                 mlp_encodings: Sequence[EncodingConfig] = (),
                 **attention: Any) -> None:
        super().__init__()

        scales = [nn.Identity() if initial is None else LayerScale(embed_dims, initial)
                  for initial in pair_of_scales(layer_scale_init_value)]
        self.norm1 = NORMS[norm](embed_dims, eps=norm_eps)
        attention_type: Any = ConvProjectionAttention if conv_projection else MultiheadAttention
        if windows is not None:
            attention_type = PlainWindowAttention
        self.attn = attention_type(embed_dims, num_heads, proj_drop=drop, norm=norm,
                                   norm_eps=norm_eps if attn_norm and attn_norm != 'qk' else None,
                                   qk_norm_eps=norm_eps if attn_norm == 'qk' else None,
                                   **attention, **(windows or {}))
        self.ls1 = scales[0]
        self.norm2 = NORMS[norm](embed_dims, eps=norm_eps)
        self.mlp = MLP(embed_dims, hidden_dims, drop, act=act, bias=mlp_bias, norm=norm,
                       norm_eps=norm_eps if mlp_norm else None, pos_encodings=mlp_encodings,
                       grid_shape=attention.get('grid_shape'),
                       num_prefix_tokens=attention.get('num_prefix_tokens', 0))
        self.ls2 = scales[1]
        self.drop_path, self.mlp_drop_path = DropPath(drop_path), DropPath(drop_path)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], key_mask: MaskLike | None = None,
                x_qk: Tensor | None = None, layout: WindowLayout | None = None,
                attn_mask: Tensor | None = None) -> Tensor:
        """(B, L, C) -> (B, L, C). ``key_mask`` (B, L) is True for padding; ``x_qk`` replaces ``x``
        for queries and keys; ``layout`` is the result of :func:`.layers.block_windows`;
        ``attn_mask`` as in :class:`MultiheadAttention`, not with windows."""
        normed_qk = None if x_qk is None else self.norm1(x_qk)
        options: dict[str, Any] = {} if layout is None else {'layout': layout}
        if attn_mask is not None:
            options['attn_mask'] = attn_mask
        out = self.attn(self.norm1(x), hw_shape, key_mask, x_qk=normed_qk, **options)
        x = x + self.drop_path(self.ls1(out))
        mask = None
        if key_mask is not None and self.mlp.pos_encodings is not None:
            cells = cells_of(key_mask)[:, self.mlp.num_prefix_tokens:]
            mask = cells.reshape(cells.shape[0], *hw_shape)
        return x + self.mlp_drop_path(self.ls2(self.mlp(self.norm2(x), hw_shape, mask)))


class SAMNeck(nn.Sequential):
    """A 1x1 and a 3x3 convolution, each with a norm of the channels (SAM, Kirillov et al., ICCV
    2023, App. A).

    Args:
        in_channels, out_channels: channels of the input and the output map.

    Difference from the release: the second convolution reads zeros on padding, as at the border.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, 1, bias=False),
            LayerNorm2d(out_channels, eps=1e-6),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            LayerNorm2d(out_channels, eps=1e-6))

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """(B, in_channels, H, W) -> (B, out_channels, H, W)."""
        x = self[1](self[0](x))
        if padding_mask is not None:
            x = x.masked_fill(padding_mask[:, None], 0.0)
        return self[3](self[2](x))


def check_mlp(mlp: str, act: str, hidden_dims: int | None) -> None:
    """Raise ValueError for unknown options of the MLP."""
    check_at_least(1, mlp_hidden_dims=hidden_dims)
    check_choices(mlp=(mlp, MLPS), act=(act, [each for each in ACTIVATIONS if each != 'swiglu']))
    if mlp == 'swiglu' and act != 'gelu':
        raise ValueError(f"act={act!r} with mlp='swiglu', whose gates are SiLU: leave act out")


def check_norms(norm: str, attn_norm: bool | str) -> None:
    """Raise ValueError for unknown norms."""
    check_choices(norm=(norm, tuple(NORMS)), attn_norm=(attn_norm, (False, True, 'qk')))


def pair_of_scales(initial: LayerScales) -> tuple[float | None, float | None]:
    """The initial values of the LayerScales of attention and of the MLP.

    Raises:
        ValueError: another number of values than one or two.
    """
    if not isinstance(initial, Sequence):
        return initial, initial
    if len(initial) != 2 or isinstance(initial, str):
        raise ValueError(f'layer_scale_init_value={initial!r} must be a number, None, or two of '
                         f'them: of attention and of the MLP')
    return initial[0], initial[1]


def check_tokens(pool: str | None, class_token: bool, distilled: bool, register_tokens: int
                 ) -> None:
    """Raise ValueError for prefix tokens that do not match ``pool``."""
    check_choices(pool=(pool, ('cls', 'gap', None)))
    check_at_least(0, register_tokens=register_tokens)
    if pool == 'cls' and not class_token:
        raise ValueError("class_token=False with pool='cls', which returns it; use pool='gap' or "
                         'None')
    if distilled and pool != 'cls':
        raise ValueError(f"distilled=True with pool={pool!r}: a distillation token needs a class "
                         f"token; use pool='cls'")


def check_blocks(num_layers: int, in_windows: bool, global_blocks: Sequence[int],
                 conv_projection: Sequence[int]) -> None:
    """Raise ValueError for blocks that do not exist or cannot attend in windows."""
    check_at_least(1, num_layers=num_layers)
    for name, blocks in (('conv_projection', conv_projection), ('global_blocks', global_blocks)):
        if not all(0 <= block < num_layers for block in blocks):
            raise ValueError(f'{name}={tuple(blocks)} must be blocks from 0 to {num_layers - 1}')
    if in_windows and not set(conv_projection) <= set(global_blocks):
        raise ValueError(f'conv_projection={tuple(conv_projection)} must be among '
                         f'global_blocks={tuple(global_blocks)}: the convolutions cross the '
                         f'borders of windows')


def window_options(window_size: int | tuple[int, int] | None,
                   window_count: int | tuple[int, int] | None, window_tokens: str,
                   window_positions: str, mask_window_padding: bool) -> dict[str, Any] | None:
    """The arguments with which ViT's attention works in windows; None without windows.

    Raises:
        ValueError: they do not fit together.
    """
    check_choices(window_tokens=(window_tokens, ('shared', 'copied')),
                  window_positions=(window_positions, ('window', 'grid')))
    if window_size is None and window_count is None:
        return None
    copied = window_tokens == 'copied'
    size, count = window_size_or_count(window_size, window_count, copied)
    return dict(window_size=size, window_count=count, copied=copied,
                whole_positions=window_positions == 'grid',
                mask_window_padding=mask_window_padding)


def check_prefix_rows(pos_encodings: PlacedEncodings, num_prefix_tokens: int) -> None:
    """Raise ValueError for tables that have rows for more prefix tokens than there are."""
    for encoding in pos_encodings.modules():
        rows = getattr(encoding, 'num_prefix_embeds', 0)
        if rows > num_prefix_tokens:
            raise ValueError(f'num_prefix_embeds={rows} of {type(encoding).__name__} must be at '
                             f'most {num_prefix_tokens}, the number of prefix tokens: give '
                             f'pos_encoding=dict(num_prefix_embeds={num_prefix_tokens}), or '
                             f'class_token=True')


def check_copied(pos_encodings: PlacedEncodings, blocks: nn.Module) -> None:
    """Raise ValueError for positions of the class token or registers, which here each window has.
    """
    for each in blocks.modules():
        if (grid := getattr(each, 'register_grid', None)) is not None:
            raise ValueError(f"window_tokens='copied' with register_grid={grid.hw}: only one set "
                             f"of registers has positions; give window_tokens='shared'")
    for position in range(-1, pos_encodings.num_blocks):
        for encoding in pos_encodings.encodings(position):
            if getattr(encoding, 'num_prefix_embeds', 0) and (
                    position >= 0 or encoding.apply_to == 'qk'):
                raise ValueError(f"window_tokens='copied' with {type(encoding).__name__} at "
                                 f'positions={position}, apply_to={encoding.apply_to!r}: its row '
                                 f'for the class token is added before the token is copied; give '
                                 f"positions=(-1,) and apply_to='qkv', or window_tokens='shared'")


def check_output(num_layers: int, pool: str | None, out_indices: Sequence[int] | None,
                 final_norm: bool | str, neck_channels: int | None, with_image: bool) -> None:
    """Raise ValueError for a norm, a neck or images that do not match the output."""
    check_choices(final_norm=(final_norm, (True, False, 'every', 'pooled')))
    check_at_least(1, neck_channels=neck_channels)
    pooled = out_indices is None and pool is not None
    if pooled and with_image:
        raise ValueError(f'with_image={with_image} with pool={pool!r}: images stand before maps; '
                         'give out_indices or pool=None')
    if pooled and pool == 'cls' and final_norm == 'pooled':
        raise ValueError("final_norm='pooled' with pool='cls': it is the norm of the mean of "
                         "pool='gap'; use final_norm=True")
    if pooled and not final_norm:
        raise ValueError(f'final_norm=False with pool={pool!r}: pooling needs the norm; use '
                         f'final_norm=True, or out_indices for maps without it')
    if neck_channels is not None and (
            pooled or (out_indices is not None and num_layers - 1 not in out_indices)):
        raise ValueError(f'neck_channels={neck_channels} with out_indices={out_indices}: the neck '
                         f"takes the last block's map; put {num_layers - 1} into out_indices")
