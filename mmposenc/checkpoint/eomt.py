"""Weights of EoMT: Hugging Face's (DINOv2 and DINOv3), and the release's of DINOv2, for
:class:`mmposenc.backbones.EoMT`."""
from __future__ import annotations

from .eva import INVERSE_PERIODS
from .rules import Pair, Rule, Source, State, joined, to_ours
from .vit import TABLE, vit_pairs

_QKV = 'backbone.blocks.{n}.attn.qkv'


def _qkv(kind: str) -> tuple[str, ...]:
    return tuple(f'layers.{{n}}.attention.{part}_proj.{kind}' for part in 'qkv')


def _layer(theirs: str, ours: str) -> Pair:
    return Pair(f'layers.{{n}}.{theirs}', f'backbone.blocks.{{n}}.{ours}')


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
_TRUNK = (
    Pair('embeddings.cls_token', 'backbone.cls_token'),
    Pair('embeddings.register_tokens', 'backbone.register_tokens'),
    Pair('layernorm.{p}', 'backbone.norm.{p}'),
    *(Pair(f'embeddings.patch_embeddings.{name}{{p}}', 'backbone.patch_embed.projection.{p}')
      for name in ('', 'projection.')),
    joined(_qkv('weight'), f'{_QKV}.weight'),
    *(_layer(f'{theirs}.{{p}}', f'{ours}.{{p}}') for theirs, ours in (
        ('norm1', 'norm1'), ('norm2', 'norm2'), ('attention.out_proj', 'attn.proj'),
        ('attention.o_proj', 'attn.proj'), ('mlp.fc1', 'mlp.fc1'), ('mlp.fc2', 'mlp.fc2'),
        ('mlp.down_proj', 'mlp.fc2'))),
    _layer('layer_scale{m}.lambda1', 'ls{m}.gamma'))
_DINOV2 = (Pair('embeddings.position_embeddings.weight', TABLE, lambda table: table[None]),
           joined(_qkv('bias'), f'{_QKV}.bias'))
_DINOV3 = tuple(_layer(f'attention.{part}_proj.bias', f'attn.qkv.{part}_bias') for part in 'qv')
_LEFT_OUT = (
    Rule(r'criterion\..*', None, 'a constant of the loss'),
    Rule(r'pixel_(mean|std)', None, 'the data preprocessor normalises images'),
    INVERSE_PERIODS)


def _rules(state: State) -> tuple[Rule, ...]:
    if 'patch_embed.cls_token' in state:
        raise ValueError('these weights are differences to those of DINOv3, which the release adds '
                         'to them; give the file that transformers makes of both '
                         '(convert_eomt_dinov3_to_hf.py)')
    of_kind = _DINOV2 if 'layers.0.attention.k_proj.bias' in state else _DINOV3
    gated = 'layers.0.mlp.gate_proj.weight' in state
    fc1 = joined(('layers.{n}.mlp.gate_proj.{p}', 'layers.{n}.mlp.up_proj.{p}'),
                 'backbone.blocks.{n}.mlp.fc1.{p}') if gated else _layer(
                     'mlp.up_proj.{p}', 'mlp.fc1.{p}')
    return (*_LEFT_OUT, *to_ours((*_HEADS, *_TRUNK, *of_kind, fc1, *vit_pairs(state))))


SOURCES = (Source('eomt', _rules, [(r'^(network\.)?(encoder\.)?(backbone\.)?', '')],
                  files="Hugging Face's EoMT, and tue-mps/eomt's on timm's DINOv2"),)
