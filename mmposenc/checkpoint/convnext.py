"""Weights of ConvNeXt and ConvNeXt V2, of their releases, DINOv3's, timm and Hugging Face, under
mmpretrain's names, which :class:`mmposenc.ConvNeXt` has."""
from __future__ import annotations

from torch import Tensor

from .rules import Pair, Rule, Source, rules_to_ours, same_name_pairs

#: Names of timm and of Hugging Face (of ConvNeXt, then of DINOv3's) as those of the releases.
_PARTS = (
    (r'^(convnext(v2)?|model)\.', ''), (r'^encoder\.(?=stages\.)', ''),
    (r'^(stem|embeddings)\.', 'downsample_layers.0.'),
    (r'^(downsample_layers\.0\.)patch_embeddings\.', r'\g<1>0.'),
    (r'^(downsample_layers\.0\.)layernorm\.', r'\g<1>1.'),
    (r'^stages\.(\d)\.(?:downsample|downsampling_layer|downsample_layers)\.',
     r'downsample_layers.\1.'),
    (r'^(stages\.\d)\.(?:blocks|layers)\.', r'\1.'),
    (r'\.(?:conv_dw|depthwise_conv)\.', '.dwconv.'),
    (r'\.(?:mlp\.fc|pointwise_conv)([12])\.', r'.pwconv\1.'),
    (r'\.layer_?norm\.', '.norm.'), (r'\.layer_scale_parameter$', '.gamma'),
    (r'\.(?:mlp\.)?grn\.weight$', '.grn.gamma'), (r'\.(?:mlp\.)?grn\.bias$', '.grn.beta'),
    (r'^(?:head\.norm|layer_?norm)\.', 'norm.'), (r'^(?:head\.fc|classifier)\.', 'head.'),
)
_BLOCK = 'stages.{n}.{m}'
_RULES = (
    *rules_to_ours((
        *same_name_pairs('downsample_layers.{n}.{m}.{p}', f'{_BLOCK}.norm.{{p}}',
                         f'{_BLOCK}.gamma'),
        Pair(f'{_BLOCK}.dwconv.{{p}}', f'backbone.{_BLOCK}.depthwise_conv.{{p}}'),
        *(Pair(f'{_BLOCK}.pwconv{layer}.{{p}}', f'backbone.{_BLOCK}.pointwise_conv{layer}.{{p}}')
          for layer in (1, 2)),
        *(Pair(f'{_BLOCK}.grn.{part}', f'backbone.{_BLOCK}.grn.{part}', Tensor.flatten)
          for part in ('gamma', 'beta')),
        Pair('norm.{p}', 'backbone.norm3.{p}'), Pair('head.{p}', 'head.fc.{p}'))),
    Rule(r'norms\.\d\.\w+', None, 'the same tensors as those of norm'),
)

SOURCES = (
    Source('convnext', _RULES, _PARTS, network="ConvNeXt: take type='mmposenc.ConvNeXt'",
           files="ConvNeXt, V2 and DINOv3's, of the releases, timm and Hugging Face"),
)
