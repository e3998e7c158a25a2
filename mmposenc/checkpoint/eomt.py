"""Weights of EoMT: Hugging Face's (DINOv2 and DINOv3), and the release's of DINOv2, for
:class:`mmposenc.backbones.EoMT`."""
from __future__ import annotations

from .eva import INVERSE_PERIODS
from .rules import AS_IS, Pair, Refusal, Rule, Source, State, rules_to_ours
from .vit import QV_BIASES, vit_pairs
from .vit_names import HUGGINGFACE_TRUNK

_HEADS = (
    Pair('attn_mask_probs', 'backbone.predictor.mask_probs'),
    *(Pair(f'{theirs}.{{p}}', f'backbone.predictor.{ours}.{{p}}') for theirs, ours in (
        ('class_predictor', 'class_head'), ('class_head', 'class_head'),
        ('mask_head.fc1', 'mask_head.0'), ('mask_head.fc2', 'mask_head.2'),
        ('mask_head.fc3', 'mask_head.4'), ('mask_head.{n}', 'mask_head.{n}'),
        *((f'{theirs}.{layer}', f'upscale.{{n}}.{ours}')
          for theirs in ('upscale_block.block.{n}', 'upscale.{n}') for layer, ours in (
              ('conv1', 'conv1'), ('conv2', 'conv2'), ('layernorm2d', 'norm'), ('norm', 'norm'))))),
    Pair('query.weight', 'backbone.query.weight'), Pair('q.weight', 'backbone.query.weight'))
#: Names of the transformer that only EoMT's files have, and those of timm. These rules come before
#: the others: DINOv3 has no biases of keys that could be joined, and not every MLP has a gate.
_TRUNK = (
    Pair('embeddings.position_embeddings.weight', 'pos_embed', lambda table: table[None]),
    Pair('embeddings.patch_embeddings.{p}', 'patch_embed.proj.{p}'),
    Pair('layers.{n}.attention.out_proj.{p}', 'blocks.{n}.attn.proj.{p}'))
_QV_BIASES = tuple(Pair(f'layers.{{n}}.attention.{part}_proj.bias',
                        f'blocks.{{n}}.attn.{part}_bias') for part in 'qv')
_FC1 = Pair('layers.{n}.mlp.up_proj.{p}', 'blocks.{n}.mlp.fc1.{p}')
_LEFT_OUT = (
    Rule(r'criterion\..*', None, 'a constant of the loss'),
    Rule(r'pixel_(mean|std)', None, 'the data preprocessor normalises images'),
    INVERSE_PERIODS)


def _rules(state: State) -> tuple[Rule, ...]:
    pairs = [*_HEADS, *_TRUNK]
    if 'layers.0.attention.k_proj.bias' not in state:
        pairs += _QV_BIASES
    if 'layers.0.mlp.gate_proj.weight' not in state:
        pairs.append(_FC1)
    return (*_LEFT_OUT, *rules_to_ours((*pairs, *HUGGINGFACE_TRUNK)), AS_IS)


def _rules_of_timm(state: State) -> tuple[Rule, ...]:
    return (*rules_to_ours((*vit_pairs(state), *QV_BIASES)), Rule(r'backbone\..*', r'\g<0>'))


SOURCES = (Source(
    'eomt', _rules, [(r'^(network\.)?(encoder\.)?(backbone\.)?', '')],
    then=Source('eomt', _rules_of_timm),
    files="Hugging Face's EoMT, and tue-mps/eomt's on timm's DINOv2", refuses=(Refusal(
        r'(.*\.)?patch_embed\.cls_token', '', 'EoMT that are differences to those of DINOv3, which '
        'the release adds to them; give the file that transformers makes of both '
        '(convert_eomt_dinov3_to_hf.py)'),)),)
