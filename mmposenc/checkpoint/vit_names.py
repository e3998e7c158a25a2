"""Vision transformers under the names of DINOv2's release, of Hugging Face, of CLIP and of
Qwen3-VL: renamed to timm's, and then read by timm's table (:mod:`mmposenc.checkpoint.vit`)."""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import isqrt

import torch
from torch import Tensor

from .rules import (
    AS_IS,
    Pair,
    Refusal,
    Rule,
    Source,
    State,
    joined_pair,
    rules_to_ours,
)
from .vit import POOL, VIT, as_convolution_kernel

_MASK = 'it stood for masked patches in pretraining, and no image has any'
_OUTSIDE = 'not of the image encoder'
_PROJECTION = 'the projection to the space that images and texts share'

#: Names of DINOv2 that are not those of timm. Files saved by FSDP hold blocks in chunks that are
#: numbered through: blocks.0.0 to blocks.3.39.
_DINOV2_RULES = (
    Rule('mask_token', None, _MASK),
    *rules_to_ours((Pair('register_tokens', 'reg_token'), *(
        Pair(f'{block}.mlp.{theirs}.{{p}}', f'blocks.{{n}}.mlp.{ours}.{{p}}')
        for block in ('blocks.{n}', 'blocks.{m}.{n}')
        for theirs, ours in (('w12', 'fc1'), ('w3', 'fc2'))))),
    Rule(r'blocks\.\d+\.(\d+\..*)', r'blocks.\1'), AS_IS)


def _attention_pairs(module: str, query: str, key: str, value: str, out: str) -> tuple[Pair, ...]:
    """Pairs of separate queries, keys and values, and of the projection of their result."""
    return (joined_pair(tuple(f'{module}.{part}.{{p}}' for part in (query, key, value)),
                        'blocks.{n}.attn.qkv.{p}'),
            Pair(f'{module}.{out}.{{p}}', 'blocks.{n}.attn.proj.{p}'))


def _huggingface_layer_pairs(layer: str) -> tuple[Pair, ...]:
    """Pairs of a layer in all spellings of Hugging Face. Models of Transformers 5, and files of
    EoMT, have names such as q_proj; files of other models have attention.query."""
    return (
        *_attention_pairs(f'{layer}.attention', 'attention.query', 'attention.key',
                          'attention.value', 'output.dense'),
        *_attention_pairs(f'{layer}.attention', 'q_proj', 'k_proj', 'v_proj', 'o_proj'),
        *(Pair(f'{layer}.{name}.{{p}}', f'blocks.{{n}}.{ours}.{{p}}') for name, ours in (
            ('layernorm_before', 'norm1'), ('layernorm_after', 'norm2'),
            ('intermediate.dense', 'mlp.fc1'), ('output.dense', 'mlp.fc2'),
            ('norm1', 'norm1'), ('norm2', 'norm2'), ('mlp.fc1', 'mlp.fc1'), ('mlp.fc2', 'mlp.fc2'),
            ('mlp.weights_in', 'mlp.fc1'), ('mlp.weights_out', 'mlp.fc2'),
            ('mlp.down_proj', 'mlp.fc2'))),
        joined_pair((f'{layer}.mlp.gate_proj.{{p}}', f'{layer}.mlp.up_proj.{{p}}'),
                    'blocks.{n}.mlp.fc1.{p}'),
        Pair(f'{layer}.layer_scale{{m}}.lambda1', 'blocks.{n}.ls{m}.gamma'))


#: Pairs of the transformer in Hugging Face's classes, EoMT's too, and its names in timm.
HUGGINGFACE_TRUNK = (
    Pair('embeddings.cls_token', 'cls_token'),
    Pair('embeddings.position_embeddings', 'pos_embed'),
    Pair('embeddings.patch_embeddings.projection.{p}', 'patch_embed.proj.{p}'),
    Pair('embeddings.register_tokens', 'reg_token'),
    Pair('layernorm.{p}', 'norm.{p}'),
    *(pair for layer in ('encoder.layer.{n}', 'layers.{n}')
      for pair in _huggingface_layer_pairs(layer)),
)
MASK_TOKEN = Rule(r'embeddings\.mask_token', None, _MASK)
_HF = (
    *HUGGINGFACE_TRUNK,
    Pair('classifier.{p}', 'head.{p}'),
    Pair('embeddings.distillation_token', 'dist_token'),
    Pair('cls_classifier.{p}', 'head.{p}'),
    Pair('distillation_classifier.{p}', 'head_dist.{p}'),
)
def _table_of_cells(match: re.Match[str], table: Tensor, state: State) -> dict[str, Tensor]:
    """The table, which has a square number of rows where there is no class token."""
    if 'embeddings.cls_token' not in state and isqrt(table.shape[1]) ** 2 != table.shape[1]:
        raise ValueError('these are weights of ViTPose, whose patches overlap and whose table has '
                         'a row that is added to every cell')
    return {'pos_embed': table}


_HF_RULES = (Rule(r'embeddings\.position_embeddings', _table_of_cells), *rules_to_ours(_HF),
             MASK_TOKEN,
             Rule(r'pooler\..*', None, 'a layer on the class token, which ViT does not have'))


def _row_pair(name: str, to: str) -> Pair:
    """Pair a vector that is (1, 1, C) in timm, or a table that is (1, N, C) there, with the same
    numbers in another shape."""
    return Pair(name, to, lambda tensor: tensor.view(1, -1, tensor.shape[-1]))


_HF_CLIP = (
    _row_pair('embeddings.class_embedding', 'cls_token'),
    _row_pair('embeddings.position_embedding.weight', 'pos_embed'),
    Pair('embeddings.patch_embedding.bias', 'patch_embed.proj.bias'),
    # SigLIP 2 for any aspect ratio has a linear layer here.
    Pair('embeddings.patch_embedding.weight', 'patch_embed.proj.weight', as_convolution_kernel),
    Pair('pre_layrnorm.{p}', 'norm_pre.{p}'),
    Pair('post_layernorm.{p}', 'norm.{p}'),
    *_attention_pairs('encoder.layers.{n}.self_attn', 'q_proj', 'k_proj', 'v_proj', 'out_proj'),
    Pair('encoder.layers.{n}.layer_norm{m}.{p}', 'blocks.{n}.norm{m}.{p}'),
    Pair('encoder.layers.{n}.mlp.fc{m}.{p}', 'blocks.{n}.mlp.fc{m}.{p}'),
)
_HF_CLIP_RULES = (*rules_to_ours(_HF_CLIP), POOL._replace(pattern=r'head\..*'),
                  Rule(r'embeddings\.position_ids', None, 'the numbers 0, 1, 2, ...'))

_CLIP = (
    _row_pair('class_embedding', 'cls_token'),
    _row_pair('positional_embedding', 'pos_embed'),
    Pair('conv1.{p}', 'patch_embed.proj.{p}'),
    Pair('ln_pre.{p}', 'norm_pre.{p}'),
    Pair('ln_post.{p}', 'norm.{p}'),
    Pair('transformer.resblocks.{n}.ln_{m}.{p}', 'blocks.{n}.norm{m}.{p}'),
    Pair('transformer.resblocks.{n}.attn.in_proj_{p}', 'blocks.{n}.attn.qkv.{p}'),
    Pair('transformer.resblocks.{n}.attn.out_proj.{p}', 'blocks.{n}.attn.proj.{p}'),
    Pair('transformer.resblocks.{n}.mlp.c_fc.{p}', 'blocks.{n}.mlp.fc1.{p}'),
    Pair('transformer.resblocks.{n}.mlp.c_proj.{p}', 'blocks.{n}.mlp.fc2.{p}'),
)
_CLIP_RULES = (*rules_to_ours(_CLIP), Rule('proj', None, _PROJECTION))


def _kernel_for_one_frame(kernel: Tensor) -> Tensor:
    """The kernel of patches for an image. A file for videos has one for each of two frames, which
    for an image are the same: the sum has its tokens, and is not rounded as halves are."""
    if kernel.dim() != 5:
        return kernel
    return kernel.double().sum(2).to(torch.promote_types(kernel.dtype, torch.float32))


#: Names in transformers' Qwen3-VL that are not those of timm.
_QWEN3 = (
    Pair('patch_embed.proj.weight', 'patch_embed.proj.weight', _kernel_for_one_frame),
    _row_pair('pos_embed.weight', 'pos_embed'),
    Pair('blocks.{n}.mlp.linear_fc{m}.{p}', 'blocks.{n}.mlp.fc{m}.{p}'),
)
_QWEN3_RULES = (
    *rules_to_ours(_QWEN3),
    Rule(r'(merger|deepstack_merger_list)\..*', None, 'a projector to the language model'), AS_IS)


_COCA = ("CoCa, or Perception Encoder's release, which loads in timm's names alone "
         "(checkpoint='timm://vit_pe_core_base_patch16_224.fb')")


def prefix_remover(*anchors: str) -> Callable[[State], dict[str, str]]:
    """Returns a function that removes a prefix from names. The prefix is what stands before the
    first name that ends in an anchor; names without it are left out."""
    def names(state: State) -> dict[str, str]:
        prefix = next((name[:-len(anchor)] for anchor in anchors for name in state
                       if name == anchor or name.endswith(f'.{anchor}')), '')
        return {name: name[len(prefix):] for name in state if name.startswith(prefix)}
    return names


def _huggingface_names(state: State) -> dict[str, str]:
    """Names of Hugging Face's models, with linear heads. A head that takes the class token and the
    mean of the patches, as Dinov2's, is left out."""
    patches = 'embeddings.patch_embeddings.projection.weight'
    names = prefix_remover(patches)(state)
    dims = state[anchored[0]].shape[0] if (anchored := [
        name for name, new in names.items() if new == patches]) else 0
    for head in ('classifier', 'cls_classifier', 'distillation_classifier'):
        if f'{head}.weight' in state and state[f'{head}.weight'].shape[1] == dims:
            names |= {name: name for name in (f'{head}.weight', f'{head}.bias')}
    return names


def _clip_rules(state: State) -> Sequence[Rule]:
    """Rules for OpenAI's tower and open_clip's; one of timm has timm's names behind 'trunk.'."""
    if 'trunk.patch_embed.proj.weight' in state:
        return Rule(r'trunk\.(.*)', r'\1'), Rule(r'head\..*', None, _PROJECTION)
    return _CLIP_RULES


SOURCES = (
    Source('clip', _clip_rules, names=prefix_remover(
        'trunk.patch_embed.proj.weight', 'class_embedding', 'ln_pre.weight'), outside=_OUTSIDE,
        then=VIT, files="OpenAI's CLIP and open_clip, the image tower, also one of timm's",
        refuses=(Refusal(r'(.*\.)?ln_pre\.weight', r'(.*\.)?ln_post\.weight', _COCA),
                 Refusal(r'(.*\.)?attn_pool\..*', '', _COCA))),
    Source('qwen3', _QWEN3_RULES, names=prefix_remover('patch_embed.proj.weight'), outside=_OUTSIDE,
           then=VIT, files="Qwen3-VL, Qwen3.5, Qwen3.8 of timm or Hugging Face, the image tower"),
    Source('dinov2', _DINOV2_RULES, names=prefix_remover('patch_embed.proj.weight'),
           outside=_OUTSIDE, then=VIT,
           files='the releases of DINOv2 and TIPSv2, and files of their training'),
    Source('huggingface-vit', _HF_RULES, names=_huggingface_names, outside=_OUTSIDE, then=VIT,
           files="Hugging Face's ViT, DeiT, Dinov2, Dinov2WithRegisters and TIPSv2"),
    Source('huggingface-clip', _HF_CLIP_RULES,
           names=prefix_remover('embeddings.patch_embedding.weight'),
           outside=_OUTSIDE, then=VIT,
           files="Hugging Face's CLIP, SigLIP and SigLIP 2, the image tower"),
)
