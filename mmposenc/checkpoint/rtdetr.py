"""Weights of RT-DETR, RT-DETRv2 and DEIM on RT-DETRv2, of their releases (lyuwenyu/RT-DETR) and of
Hugging Face, for :class:`mmposenc.RTDETR` on :class:`mmposenc.ResNetVD`, in mmdet's names."""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from torch import Tensor

from .rules import DETECTOR, Pair, Rule, Source, State, joined_pair, rules_to_ours

#: The number of a convolution and of its BatchNorm in mmdet's stem and shortcut.
_STEM = {'conv': (0, 3, 6), 'norm': (1, 4, 7)}
_SHORTCUT = {'conv': 1, 'norm': 2}


def _rename_stem(match: re.Match[str], tensor: Tensor, state: State) -> dict[str, Tensor]:
    first, number, part, kind = match.groups()
    name = _STEM[part][int(number) - (first == 'conv1.conv1_')]
    return {f'backbone.stem.{name}.{kind}': tensor}


def _rename_block(match: re.Match[str], tensor: Tensor, state: State) -> dict[str, Tensor]:
    stage, block, branch, part, kind = match.groups()
    name = (f'downsample.{_SHORTCUT[part]}' if branch == 'short' else
            f'{"conv" if part == "conv" else "bn"}{"abc".index(branch[-1]) + 1}')
    return {f'backbone.layer{int(stage) + 1}.{block}.{name}.{kind}': tensor}


def _rename_branch(match: re.Match[str], tensor: Tensor, state: State) -> dict[str, Tensor]:
    """A layer that predicts classes or boxes. The branches of the encoder are the last here."""
    _, what, number, layer, kind = match.groups()
    layers = {name.split('.')[3] for name in state if name.startswith('decoder.decoder.layers.')}
    branch = number or len(layers)
    name = (f'cls_branches.{branch}' if what in ('score', 'class')
            else f'reg_branches.{branch}.{2 * int(layer)}')
    return {f'bbox_head.{name}.{kind}': tensor}


def mlp_rule(theirs: str, ours: str) -> Rule:
    """The rule of linear layers with activations between them, which are numbered here.

    Args:
        theirs: a pattern, ``decoder.pre_bbox_head``, which may have groups.
        ours: a template for them.
    """
    def renamed(match: re.Match[str], tensor: Tensor, state: State) -> dict[str, Tensor]:
        *_, layer, kind = match.groups()
        return {f'{match.expand(ours)}.{2 * int(layer)}.{kind}': tensor}

    return Rule(rf'{theirs}\.layers\.(\d)\.(\w+)', renamed)


_NECK = r'encoder\.((?:lateral_convs|downsample_convs|fpn_blocks|pan_blocks)\..*)'


def layer_pairs(theirs: str, ours: str, norms: Sequence[int]) -> tuple[Pair, ...]:
    """Pairs of self-attention, MLP and norms of layers of a transformer.

    Args:
        theirs, ours: the layer, 'decoder.layers.{n}'.
        norms: the numbers of the norms in a layer of the release's.
    """
    return (
        Pair(f'{theirs}.self_attn.in_proj_{{p}}', f'{ours}.self_attn.attn.in_proj_{{p}}'),
        joined_pair(tuple(f'{theirs}.self_attn.{part}_proj.{{p}}' for part in 'qkv'),
                    f'{ours}.self_attn.attn.in_proj_{{p}}'),
        Pair(f'{theirs}.self_attn.out_proj.{{p}}', f'{ours}.self_attn.attn.out_proj.{{p}}'),
        Pair(f'{theirs}.linear1.{{p}}', f'{ours}.ffn.layers.0.0.{{p}}'),
        Pair(f'{theirs}.linear2.{{p}}', f'{ours}.ffn.layers.1.{{p}}'),
        *(Pair(f'{theirs}.norm{number}.{{p}}', f'{ours}.norms.{index}.{{p}}')
          for index, number in enumerate(norms)))


def detector_rules(norms: Sequence[int]) -> tuple[Rule, ...]:
    """Rules for all of a detector but its backbone.

    Args:
        norms: the numbers of the norms in a layer of the release's decoder.
    """
    layers = (('encoder.encoder.{n}.layers.{m}', 'neck.encoders.{n}.layers.{m}', (1, 2)),
              ('decoder.decoder.layers.{n}', 'decoder.layers.{n}', norms))
    return (
        Rule(r'encoder\.input_proj\.(\d)\.(?:0|conv)\.(\w+)', r'neck.input_proj.\1.conv.\2'),
        Rule(r'encoder\.input_proj\.(\d)\.(?:1|norm)\.(\w+)', r'neck.input_proj.\1.norm.\2'),
        Rule(_NECK, r'neck.\1'),
        *rules_to_ours(pair for layer in layers for pair in layer_pairs(*layer)),
        Rule(r'decoder\.(decoder\.layers\.\d+\.cross_attn\.)num_points_scale', None,
             'computed from the number of points'),
        Rule(r'decoder\.(decoder\.layers\.\d+\.cross_attn\..*)', r'\1'),
        Rule(r'decoder\.input_proj\.(\d)\.(?:0|conv)\.(\w+)', r'input_proj.\1.conv.\2'),
        Rule(r'decoder\.input_proj\.(\d)\.(?:1|norm)\.(\w+)', r'input_proj.\1.norm.\2'),
        Rule(r'decoder\.enc_output\.(?:0|proj)\.(\w+)', r'memory_trans_fc.\1'),
        Rule(r'decoder\.enc_output\.(?:1|norm)\.(\w+)', r'memory_trans_norm.\1'),
        mlp_rule(r'decoder\.query_pos_head', 'decoder.ref_point_head'),
        Rule(r'decoder\.(enc|dec)_(score|bbox)_head(?:\.(\d+)(?=\.weight|\.bias|\.layers))?'
             r'(?:\.layers\.(\d))?\.(weight|bias)', _rename_branch),
        # The last row is that of queries without an object, which stays zero.
        *rules_to_ours([Pair('decoder.denoising_class_embed.weight',
                             'dn_query_generator.label_embedding.weight',
                             lambda table: table[:-1])]),
        Rule(r'decoder\.(anchors|valid_mask)', None, 'computed here for the maps of each image'))


_RTDETR = (
    Rule(r'backbone\.(conv1\.conv1_|stem\.)(\d)\.(conv|norm)\.(\w+)', _rename_stem),
    Rule(r'backbone\.res_layers\.(\d)\.blocks\.(\d+)\.(branch2[abc]|short)(?:\.conv(?=\.\w+\.))?'
         r'\.(conv|norm)\.(\w+)', _rename_block),
    *detector_rules((1, 2, 3)),
)
#: Hugging Face's names as those of the releases; files of transformers 4 and 5 differ.
HUGGING_FACE = (
    (r'^model\.decoder\.class_embed', 'decoder.dec_score_head'),
    (r'^model\.decoder\.bbox_embed', 'decoder.dec_bbox_head'),
    (r'^model\.decoder\.query', 'decoder.query'),
    (r'^model\.decoder\.', 'decoder.decoder.'),
    (r'^model\.encoder\.(?:aifi|encoder)\.', 'encoder.encoder.'),
    (r'^model\.encoder\.', 'encoder.'),
    (r'^model\.(encoder|decoder)_input_proj', r'\1.input_proj'),
    (r'^model\.(enc_output|enc_score|enc_bbox|denoising)', r'decoder.\1'),
    (r'\.o_proj\.', '.out_proj.'), (r'\.(?:mlp\.)?fc([12])\.', r'.linear\1.'),
    (r'\.encoder_attn\.n_points', '.cross_attn.num_points'), (r'\.encoder_attn\.', '.cross_attn.'),
    (r'\.self_attn_layer_norm', '.norm1'), (r'\.encoder_attn_layer_norm', '.norm2'),
    (r'^(encoder.*)\.final_layer_norm', r'\1.norm2'), (r'\.final_layer_norm', '.norm3'),
    (r'^model\.backbone\.model\.embedder\.embedder', 'backbone.stem'),
    (r'^model\.backbone\.model\.encoder\.stages\.(\d)\.layers', r'backbone.res_layers.\1.blocks'),
    (r'\.shortcut\.(?:1\.)?', '.short.'), (r'\.layer\.0\.', '.branch2a.'),
    (r'\.layer\.1\.', '.branch2b.'), (r'\.layer\.2\.', '.branch2c.'),
    (r'\.convolution\.', '.conv.'), (r'\.normalization\.', '.norm.'),
)


def huggingface_rules(rules: Sequence[Rule]) -> Callable[[State], tuple[Rule, ...]]:
    """The rules for a file of Hugging Face's, which may have the branches of the head twice.

    Args:
        rules: those of the release's names.
    """
    names = r'()(class|bbox)_embed\.(\d+)(?:\.layers\.(\d))?\.(weight|bias)'

    def of_file(state: State) -> tuple[Rule, ...]:
        twice = any(name.startswith('decoder.dec_score_head.') for name in state)
        return (*rules, Rule(names, None, 'the same tensors as those of model.decoder') if twice
                else Rule(names, _rename_branch))

    return of_file


SOURCES = (
    # A whole detector, or its backbone alone.
    Source('rt-detr', _RTDETR, ((r'^(?=conv1\.conv1_|res_layers\.)', 'backbone.'),),
           network=DETECTOR, files="the releases of RT-DETR, RT-DETRv2 and DEIM's RT-DETRv2"),
    Source('huggingface-rt-detr', huggingface_rules(_RTDETR), HUGGING_FACE, network=DETECTOR,
           files='RT-DETR and RT-DETRv2 of Hugging Face'),
)
