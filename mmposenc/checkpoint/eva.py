"""Weights of timm's Eva, the class of DINOv3, EVA-02 and RoPE-ViT there, for
:class:`mmposenc.backbones.ViT` in an ImageClassifier; and the names of DINOv3's release and of
Hugging Face's DINOv3, which are first made timm's."""
from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .rules import (
    AS_IS,
    Family,
    Pair,
    Refusal,
    Rule,
    Source,
    State,
    joined_pair,
    names_text,
    only_of_timm,
    rules_to_ours,
    same_name_pairs,
)
from .vit import HEAD, POOL, QK_NORMS, QV_BIASES, SCALES, TABLE, TOKENS, TRUNK

_SCALE, _Q_BIAS = 'backbone.blocks.0.ls1.gamma', 'backbone.blocks.0.attn.qkv.q_bias'
#: A pattern of names by which we recognise weights of these models in our form: factors of
#: branches, or biases without those of the keys.
_MARK = f'{re.escape(_SCALE)}|{re.escape(_Q_BIAS)}'
_FREQS = 'backbone.blocks.{}.attn.rel_pos_encoding.freqs'

_PAIRS = (
    *TRUNK, *TOKENS, *same_name_pairs('blocks.{n}.attn.norm.{p}', 'blocks.{n}.mlp.norm.{p}'),
    *HEAD, SCALES)
_ATTN, _OURS = 'blocks.{n}.attn', 'backbone.blocks.{n}.attn.qkv'
_QKV = (Pair(f'{_ATTN}.qkv.{{p}}', f'{_OURS}.{{p}}'), *QV_BIASES)
_APART = (joined_pair(tuple(f'{_ATTN}.{part}_proj.weight' for part in 'qkv'), f'{_OURS}.weight'),
          Pair(f'{_ATTN}.q_proj.bias', f'{_OURS}.q_bias'),
          Pair(f'{_ATTN}.v_proj.bias', f'{_OURS}.v_bias'))
_PARTS = tuple(f'{_ATTN}.{part}_proj.{end}' for end in ('weight', 'bias') for part in 'qkv')
_FC1 = Pair('blocks.{n}.mlp.fc1.{p}', 'backbone.blocks.{n}.mlp.fc1.{p}')
_GATES = joined_pair(('blocks.{n}.mlp.fc1_g.{p}', 'blocks.{n}.mlp.fc1_x.{p}'),
                     'backbone.blocks.{n}.mlp.fc1.{p}')


def has_swiglu(converted: State) -> bool:
    """Whether the MLPs of converted weights are SwiGLU: the first layer then gives twice as many
    channels as the second takes."""
    first, second = (converted.get(f'backbone.blocks.0.mlp.fc{i}.weight') for i in (1, 2))
    return first is not None and second is not None and first.shape[0] == 2 * second.shape[1]


def _pair_of_shared_heads(block: int, blocks: int, dims: int) -> Pair:
    """The pair of queries, keys and values of a block of Sapiens2, with ``dims`` channels in a
    head. In all but the first and last eight blocks two heads share keys and values; here each head
    has a copy."""
    def there(*parts: Tensor) -> list[Tensor]:
        return [torch.cat([part.unflatten(0, (-1, dims)).repeat_interleave(
            len(three[0]) // len(part), 0).flatten(0, 1) for part in three])
            for three in (parts[:3], parts[3:])]

    def back(weight: Tensor, bias: Tensor) -> list[Tensor]:
        parts = [*weight.chunk(3), *bias.chunk(3)]
        for number in (1, 2, 4, 5) if 8 <= block < blocks - 8 else ():
            first, second = parts[number].unflatten(0, (-1, 2, dims)).unbind(1)
            if not first.is_meta and not torch.equal(first, second):
                raise ValueError('has different keys or values in these heads, as after training; '
                                 "in timm's model two heads share them")
            parts[number] = first.flatten(0, 1)
        return parts

    def names(templates: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.format(n=block) for text in templates)
    return Pair(names(_PARTS), names((f'{_OURS}.weight', f'{_OURS}.bias')), there, back)


def eva_pairs(state: Mapping[str, Tensor]) -> tuple[Pair, ...]:
    """The names of timm's Eva, and ours.

    Args:
        state: weights under the names of either side, from which timm's form is recognised:
            queries, keys and values apart (EVA-02 with a norm in its MLP, and Sapiens2), gates
            apart (EVA-02 with a norm, and DINOv3), one tensor for the mixed frequencies of all
            blocks.
    """
    norms = [value for name, value in state.items() if name.endswith('.attn.q_norm.weight')]
    if norms and 'pos_embed' not in state and TABLE not in state:  # With a table it is ViT-5.
        return (*_PAIRS, *QK_NORMS, _FC1, *(
            _pair_of_shared_heads(block, len(norms), len(norms[0])) for block in range(len(norms))))
    has_norm = 'backbone.blocks.0.mlp.norm.weight' in state
    apart = has_norm or 'blocks.0.attn.q_proj.weight' in state
    gates = 'blocks.0.mlp.fc1_g.weight' in state or (
        has_swiglu(state) and (has_norm or TABLE not in state))
    depth = sum(name.endswith('.attn.rel_pos_encoding.freqs') for name in state)
    depth = state['rope.freqs'].shape[1] if 'rope.freqs' in state else depth
    freqs = (Pair('rope.freqs', tuple(_FREQS.format(block) for block in range(depth)),
                  lambda whole: whole.unbind(1), lambda *parts: torch.stack(parts, 1)),)
    return (*_PAIRS, *(_APART if apart else _QKV), _GATES if gates else _FC1,
            *(freqs if depth else ()))


_MASK = 'of pretraining with masked patches'


def _biases_times_mask(match: re.Match[str], bias: Tensor, state: Mapping[str, Tensor]
                       ) -> dict[str, Tensor]:
    """Multiply the biases of DINOv3's release by the mask that its file may have. In the published
    files the mask removes the biases of the keys; if it leaves any of them, the block keeps all
    three biases."""
    query, key, value = (bias * state.get(f'{match[0]}_mask', 1)).chunk(3)
    if key.any():
        return {match[0]: torch.cat((query, key, value))}
    return {f'{match[1]}.q_bias': query, f'{match[1]}.v_bias': value}


#: Names of the layers of an MLP with gates, which both releases have.
_GATED = tuple(Pair(f'blocks.{{n}}.mlp.{theirs}.{{p}}', f'blocks.{{n}}.mlp.{ours}.{{p}}')
               for theirs, ours in (('w1', 'fc1_g'), ('w2', 'fc1_x'), ('w3', 'fc2')))
#: Rules of DINOv3's release and that of Sapiens2.
_BOTH = (
    Rule(r'mask_token', None, _MASK),
    Rule(r'rope_embed\.periods', None, 'computed from theta',
         lambda match, periods, state: {'periods': periods}),
    *rules_to_ours((Pair('storage_tokens', 'reg_token'),)))
_DINOV3 = (
    *_BOTH,
    Rule(r'.*\.qkv\.bias_mask', None, 'a factor of the biases'),
    Rule(r'local_cls_norm\..*', None, 'a norm of small crops in pretraining'),
    Rule(r'projectors\..*', None, 'heads of distillation'),  # Only files of EUPE have these.
    Rule(r'(blocks\.\d+\.attn)\.qkv\.bias', _biases_times_mask),
    *rules_to_ours((Pair('blocks.{n}.ls{m}.gamma', 'blocks.{n}.gamma_{m}'), *_GATED)),
)
_SAPIENS2 = (
    *_BOTH,
    *rules_to_ours((
        Pair('patch_embed.projection.{p}', 'patch_embed.proj.{p}'), Pair('ln1.{p}', 'norm.{p}'),
        Pair('blocks.{n}.ln{m}.{p}', 'blocks.{n}.norm{m}.{p}'),
        Pair('blocks.{n}.attn.gamma.weight', 'blocks.{n}.gamma_1'),
        *(Pair(f'blocks.{{n}}.attn.w{part}.{{p}}', f'blocks.{{n}}.attn.{part}_proj.{{p}}')
          for part in 'qkv'),
        Pair('blocks.{n}.ffn.w12.{p}', 'blocks.{n}.mlp.fc1.{p}'),
        Pair('blocks.{n}.ffn.w3.{p}', 'blocks.{n}.mlp.fc2.{p}'))))

#: The rule for rotary periods of Hugging Face's models, which have DINOv3's rotary positions.
INVERSE_PERIODS = Rule(r'rope_embeddings\.(original_)?inv_freq', None, 'computed from theta',
                       lambda match, frequencies, state: {'periods': 1 / frequencies})
_HUGGINGFACE = (
    Rule(r'embeddings\.mask_token', None, _MASK),
    INVERSE_PERIODS,
    *rules_to_ours((
        Pair('embeddings.cls_token', 'cls_token'), Pair('embeddings.register_tokens', 'reg_token'),
        Pair('embeddings.patch_embeddings.{p}', 'patch_embed.proj.{p}'),
        Pair('norm.{p}', 'norm.{p}'), Pair('layer.{n}.norm{m}.{p}', 'blocks.{n}.norm{m}.{p}'),
        *(Pair(f'layer.{{n}}.attention.{part}_proj.{{p}}', f'blocks.{{n}}.attn.{part}_proj.{{p}}')
          for part in 'qkv'),
        Pair('layer.{n}.attention.o_proj.{p}', 'blocks.{n}.attn.proj.{p}'),
        Pair('layer.{n}.layer_scale{m}.lambda1', 'blocks.{n}.gamma_{m}'),
        Pair('layer.{n}.mlp.gate_proj.{p}', 'blocks.{n}.mlp.fc1_g.{p}'),
        Pair('layer.{n}.mlp.down_proj.{p}', 'blocks.{n}.mlp.fc2.{p}'))),
    # In an MLP without gates this is the layer before the activation; in one with gates, the layer
    # that the gates multiply.
    Rule(r'layer\.(\d+)\.mlp\.up_proj\.(weight|bias)', lambda match, tensor, state: {
        f'blocks.{match[1]}.mlp.fc1{"_x" if "layer.0.mlp.gate_proj.weight" in state else ""}'
        f'.{match[2]}': tensor}),
)


def _as_timm(state: State) -> tuple[Rule, ...]:
    """Rename weights of the releases of DINOv3 and Sapiens2, or of Hugging Face's DINOv3, to timm's
    names; those that have timm's names stay."""
    if 'blocks.0.attn.wq.weight' in state:
        return (*_SAPIENS2, AS_IS)
    if 'storage_tokens' in state:
        return (*_DINOV3, AS_IS)
    of_huggingface = 'layer.0.attention.q_proj.weight' in state
    return (*_HUGGINGFACE, AS_IS) if of_huggingface else (AS_IS,)


SOURCES = (Source('eva', _as_timm, [(r'^model\.', '')], then=Source(
    'eva', lambda timm: (*rules_to_ours(eva_pairs(timm)), POOL)),
    timm=Family(eva_pairs, _MARK), files=(
        "DINOv3's release and Hugging Face's, Sapiens2's release; timm's of these, LingBot-Vision, "
        'EVA-02, RoPE-ViT and Perception Encoder'), refuses=(
        only_of_timm(r'(.*\.)?rope\.freqs_(cos|sin)', "EVA-02's release",
                     'eva02_base_patch14_224.mim_in22k'),
        only_of_timm(r'freqs(_t_[xy])?', "RoPE-ViT's release",
                     'vit_base_patch16_rope_mixed_224.naver_in1k'),
        Refusal(r'blocks\.0\.attn\.norm\.weight', r'blocks\.0\.attn\.(q_bias|q_proj\.weight)',
                'BEiT-3'),
        Refusal(r'blocks\.63\.attn\.q_bias', '', "EVA-02-CLIP's enormous model, whose norms stand "
                'behind attention and MLP'))),)


def rotary_options(periods: Tensor) -> dict[str, object]:
    """Options of :class:`mmposenc.encodings.RotaryEmbedding` that give the periods of a file.

    Args:
        periods: (n,) of one axis, in any dtype.

    Raises:
        ValueError: no options give them.
    """
    periods = periods.double()
    numbers = torch.arange(len(periods), dtype=torch.float64)
    nearest = periods.bfloat16().double()
    # Not exactly equal, because the file stores inverse periods.
    rounded = torch.allclose(nearest, periods, rtol=1e-6, atol=0)
    theta = float(periods[-1]) ** (len(periods) / max(len(periods) - 1, 1))
    ends = tuple(float(f'{float(end):.6g}') for end in (periods[0], periods[-1]))
    bases = [float(f'{theta:.{digits}g}') for digits in (1, 2, 3, 6)]
    series: list[tuple[dict[str, object], Tensor]] = [
        ({'theta': base}, base ** (numbers / len(periods))) for base in bases]
    if min(ends) > 0:
        share = numbers / max(len(periods) - 1, 1)
        series.append(({'periods': ends}, ends[0] * (ends[1] / ends[0]) ** share))
    for options, exact in series:
        if torch.allclose(exact, periods, rtol=1e-5, atol=0):
            return {**options, 'round_periods': False}
        if rounded and torch.equal(exact.bfloat16().double(), nearest):
            return {**options, 'round_periods': True}
    shown = names_text([f'{each:.5g}' for each in periods])
    raise ValueError(f'rotary positions have periods {shown}, '
                     'which are no geometric series; no options give them')
