"""Position encodings in timm's vision transformers."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn

try:
    from timm.models.eva import Eva
    from timm.models.swin_transformer import SwinTransformerStage
    from timm.models.swin_transformer_v2 import SwinTransformerV2Stage
    from timm.models.vision_transformer import VisionTransformer

    from .timm_attention import ENCODED, drop_own_bias
    from .timm_grids import grid_of_call, pass_grid, register_grid_hooks
except ImportError as error:
    raise ImportError(f'mmposenc.integrations.timm needs timm (1.0.31 or a compatible release) and '
                      f'torchvision: pip install -U timm ({error})') from error

from ..attention.building import build_relative_encoding
from ..config_types import ConfigType
from ..encodings.base import RelativeConfig, relative_tables
from ..encodings.build import listed
from ..encodings.placement import EncodingConfigs, PlacedEncodings, Positions
from ..encodings.sharing import share_encodings

_Model = TypeVar('_Model', bound=nn.Module)


def add_encoding(model: _Model, pos_encoding: EncodingConfigs = None,
                 rel_pos_encoding: RelativeConfig | None = None,
                 positions: Positions = None, *, rel_pos_sharing: str = 'layer',
                 drop_pos_embed: bool = False, drop_rel_pos: bool = False) -> _Model:
    """Add position encodings to a vision transformer of timm, or replace its own.

    Args:
        model: timm's VisionTransformer, Eva, SwinTransformer or SwinTransformerV2, or a module that
            contains one (``features_only=True``, a detector). It is changed in place.
        pos_encoding: a TokenEncoding config, a list of them, or None, as in the backbones here;
            each stage of a Swin gets its own. A module instead of a config can be used at only one
            place.
        rel_pos_encoding: a RelativeEncoding config for every attention, a list of them to be
            summed, or None. In Swins its grid is the window.
        positions: where ``pos_encoding`` is applied: -1 before the first block (of a stage), i
            after block i, 'every'; None: the usual place of each encoding.
        rel_pos_sharing: 'layer': each attention has its own encoding; 'stage': all attentions of a
            stage share one; 'all': all attentions share one.
        drop_pos_embed: remove the model's own table (``pos_embed``).
        drop_rel_pos: remove the model's own relative encoding: Eva's rotary encoding, Swin's bias.

    Returns:
        The model. timm's weights keep their names; new weights are under ``pos_encodings`` of the
        model or stage, and ``rel_pos_encoding`` of the attentions. With ``zero_init=True`` in the
        configs the outputs do not change.

    Raises:
        ValueError: the model has no such transformer or already has encodings, or an encoding,
            place or option does not fit. The model is not changed then.
    """
    if pos_encoding is None and positions is not None:
        raise ValueError(f'positions={positions!r} needs a pos_encoding')
    if pos_encoding is None and rel_pos_encoding is None and not (drop_pos_embed or drop_rel_pos):
        raise ValueError('pos_encoding=None and rel_pos_encoding=None: there is nothing to add')
    plain, stages = parts_of(model)
    stacks = [*plain, *stages]
    _check_drops(model, plain, stages, drop_pos_embed, drop_rel_pos)
    changes_attention = rel_pos_encoding is not None or (drop_rel_pos and bool(stages))
    attentions = _attentions(model, stacks) if changes_attention else []
    placed = ([] if pos_encoding is None
              else _placed_encodings(pos_encoding, positions, stacks, bool(stages)))
    if rel_pos_encoding is not None:
        _encode_attention(model, stacks, rel_pos_encoding, rel_pos_sharing)
    for attention in attentions:
        attention.__class__ = ENCODED[type(attention)]
        if rel_pos_encoding is None:
            attention.rel_pos_encoding = None
        if drop_rel_pos and stages:
            drop_own_bias(attention)
    for stack in plain:
        register_grid_hooks(stack)
        stack.pos_embed = None if drop_pos_embed else stack.pos_embed
        if drop_rel_pos:
            stack.rope = None
    for stack, encodings in zip(stacks, placed, strict=False):
        _install_hooks(stack, encodings)
    for each in model.modules():
        if hasattr(each, 'no_weight_decay'):
            names = partial(_no_weight_decay, each, each.no_weight_decay)
            setattr(each, 'no_weight_decay', names)  # noqa: B010  (mypy expects a parameter)
        if hasattr(each, 'group_matcher'):
            matcher = partial(_group_matcher, hasattr(each, 'layers'), each.group_matcher)
            setattr(each, 'group_matcher', matcher)  # noqa: B010
    return model


def parts_of(model: nn.Module) -> tuple[list[Any], list[Any]]:
    """The one ViT or Eva in a model, or the stages of its Swin.

    Raises:
        ValueError: the model does not have exactly one of them.
    """
    plain = _modules_of_kinds(model, VisionTransformer, Eva)
    stages = _modules_of_kinds(model, SwinTransformerStage, SwinTransformerV2Stage)
    name = type(model).__name__
    if len(plain) > 1 or bool(plain) == bool(stages):
        raise ValueError(f'model={name} must be or hold one VisionTransformer, Eva, '
                         f'SwinTransformer or SwinTransformerV2 of timm; it holds '
                         f'{len(plain)} ViTs and {len(stages)} stages of Swins')
    for stack in (*plain, *stages):
        if hasattr(stack, 'pos_encodings') or any(
                hasattr(module, 'rel_pos_encoding') for module in stack.modules()):
            raise ValueError(f'model={name} has encodings of mmposenc already; add all of them in '
                             f'one call, as a list')
    for stack in plain:
        drops = getattr(stack, 'patch_drop', None)
        if drops is not None and not isinstance(drops, nn.Identity):
            raise ValueError(f'model={name} has patch_drop_rate > 0, which leaves tokens without a '
                             f'grid; create it with patch_drop_rate=0')
    return plain, stages


def _modules_of_kinds(model: nn.Module, *kinds: type[nn.Module]) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kinds)]


def _check_drops(model: nn.Module, plain: Sequence[Any], stages: Sequence[Any],
                 drop_pos_embed: bool, drop_rel_pos: bool) -> None:
    name = type(model).__name__
    if drop_pos_embed and (not plain or plain[0].pos_embed is None):
        raise ValueError(f'drop_pos_embed=True, but {name} has no pos_embed')
    if drop_pos_embed and type(plain[0])._pos_embed not in (VisionTransformer._pos_embed,
                                                            Eva._pos_embed):
        raise ValueError(f'drop_pos_embed=True, but {type(plain[0]).__name__} cannot run without '
                         f'its pos_embed; leave the option out')
    if drop_rel_pos and not stages and getattr(plain[0], 'rope', None) is None:
        raise ValueError(f'drop_rel_pos=True, but {name} has no relative encoding')


def _attentions(model: nn.Module, stacks: Sequence[Any]) -> list[Any]:
    attentions = [getattr(block, 'attn', None) for stack in stacks for block in stack.blocks]
    wrong = sorted({type(attn).__name__ for attn in attentions if type(attn) not in ENCODED})
    if wrong:
        raise ValueError(f'model={type(model).__name__} has blocks with attention '
                         f'{", ".join(wrong)}; {", ".join(each.__name__ for each in ENCODED)} are '
                         f'supported')
    return attentions


def _placed_encodings(cfg: EncodingConfigs, positions: Positions, stacks: Sequence[Any],
                      in_stages: bool) -> list[PlacedEncodings]:
    """Place the encodings of each stack of blocks."""
    ready = [each for each in listed(cfg) if isinstance(each, nn.Module)]
    if ready and len(stacks) > 1:
        raise ValueError(f'pos_encoding holds a module, {type(ready[0]).__name__}, but the model '
                         f'has {len(stacks)} stages; give a config dict')
    by_stack: list[PlacedEncodings] = []
    for stack in stacks:
        sizes: dict[str, object] = dict(
            embed_dims=stack.blocks[0].dim, grid_shape=tuple(stack.output_resolution),
            followed=stack is not stacks[-1], first=sum(
                len(each.blocks) for each in stacks[:len(by_stack)])) if in_stages else dict(
            embed_dims=stack.embed_dim, grid_shape=tuple(stack.patch_embed.grid_size),
            num_prefix_embeds=stack.num_prefix_tokens)
        placed = PlacedEncodings(cfg, positions, len(stack.blocks), **sizes)
        placed.refuse_unsupported(
            query_key="timm's blocks take queries, keys and values from the same tokens",
            other_grid="timm's models keep it")
        by_stack.append(placed.to(next(stack.blocks.parameters())))
    return by_stack


def _encode_attention(model: nn.Module, stacks: Sequence[Any],
                      cfg: RelativeConfig, sharing: str) -> None:
    """Add a relative encoding to every attention. If one of them cannot be built, none is added."""
    attentions = [block.attn for stack in stacks for block in stack.blocks]
    built = []
    for stack in stacks:
        prefix = getattr(stack, 'num_prefix_tokens', 0)
        for block in stack.blocks:
            attn, window = block.attn, getattr(block.attn, 'window_size', None)
            sizes: dict[str, object] = dict(grid_shape=tuple(stack.patch_embed.grid_size))\
                if window is None else dict(grid_shape=window, window_size=window)
            dims = attn.proj.in_features // attn.num_heads
            encoding = build_relative_encoding(cfg, dims, attn.num_heads, prefix, **sizes)
            built.append(encoding.to(attn.proj.weight))
    for attn, encoding in zip(attentions, built, strict=True):
        attn.rel_pos_encoding = encoding
    try:
        share_encodings(sharing, model, stacks)
    except ValueError:
        for attn in attentions:
            del attn.rel_pos_encoding
        raise


def _install_hooks(stack: Any, placed: PlacedEncodings) -> None:
    """Apply encodings in hooks of the blocks, so that they run no matter which code calls the
    blocks."""
    stack.pos_encodings = placed
    plain = hasattr(stack, 'patch_embed')
    encode: Callable[..., Tensor] = partial(_encode_tokens, placed,
                                            stack.num_prefix_tokens) if plain else partial(
                                                _encode_map, placed)
    for index, block in enumerate(stack.blocks):
        if placed.encodings(index):
            block.register_forward_hook(partial(_after, encode, index))
            if plain:
                block.register_forward_hook(pass_grid)
    if placed.encodings(-1):
        first = getattr(stack, 'norm_pre', stack.blocks[0])
        first.register_forward_pre_hook(partial(_before, encode))


def _after(encode: Callable[..., Tensor], index: int, block: nn.Module, args: tuple[Tensor, ...],
           out: Tensor) -> Tensor:
    return encode(out, index)


def _before(encode: Callable[..., Tensor], block: nn.Module, args: tuple[Tensor, ...]
            ) -> tuple[Tensor, ...]:
    return (encode(args[0], -1), *args[1:])


def _encode_tokens(placed: PlacedEncodings, num_prefix_tokens: int, x: Tensor, position: int
                   ) -> Tensor:
    return placed(x, grid_of_call(), position,
                  num_prefix_tokens=num_prefix_tokens)[0]


def _encode_map(placed: PlacedEncodings, x: Tensor, position: int) -> Tensor:
    """Apply encodings to Swin's maps (B, H, W, C)."""
    out: Tensor = placed(x.flatten(1, 2), tuple(x.shape[1:3]), position)[0]
    return out.view(x.shape)


def _no_weight_decay(model: nn.Module, timms: Callable[[], set[str]]) -> set[str]:
    """The names of parameters without weight decay: those of timm, and the tables of encodings."""
    tables = [name for name, _ in model.named_parameters()
              if 'pos_encodings.' in name and name.endswith('pos_embed')]
    return {*timms(), *relative_tables(model), *tables}


def _group_matcher(in_stages: bool, timms: Callable[..., ConfigType], coarse: bool = False
                   ) -> ConfigType:
    """The groups of parameters for layer-wise rates: those of timm, and those of encodings. An
    encoding belongs to the block that it follows, to the first block that shares it, or to what
    comes before the blocks."""
    groups = timms(coarse=coarse)
    stage = r'^layers\.(\d+)\.' if in_stages else '^'
    before = r'layers\.0\.pos_encodings' if in_stages else 'pos_encodings'
    encodings: list[tuple[str, tuple[int, ...] | None]] = [
        (stage + r'pos_encodings\.at\.after(\d+)', None),
        (stage + r'pos_encodings\.at\.before', (0,)),
        (stage + 'rel_pos_encoding', (0,)),
        ('^rel_pos_encoding', (0, 0) if in_stages and not coarse else (0,))]
    if in_stages and coarse:  # With coarse groups a stage is one group.
        encodings = encodings[-1:]
    blocks = groups['blocks']
    return {**groups, 'stem': rf'{groups["stem"]}|{before}\.at\.before',
            'blocks': [*encodings, *([(blocks, None)] if isinstance(blocks, str) else blocks)]}
