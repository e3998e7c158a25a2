"""Names of the official Swin Transformers, timm's, mmpretrain's and mmdet's."""
import pytest
import torch

from mmposenc.checkpoint import convert, convert_with_report

OFFICIAL = {
    'patch_embed.proj.weight': (4, 3, 4, 4), 'patch_embed.norm.bias': (4,),
    'layers.0.blocks.1.norm1.weight': (4,), 'layers.0.blocks.1.attn.qkv.weight': (12, 4),
    'layers.0.blocks.1.attn.relative_position_bias_table': (9, 2),
    'layers.0.blocks.1.mlp.fc1.bias': (8,), 'layers.0.downsample.norm.weight': (16,),
    'layers.0.downsample.reduction.weight': (8, 16), 'layers.1.blocks.0.norm2.bias': (8,),
    'norm.weight': (8,), 'head.weight': (5, 8)}
EXPECTED = {
    'backbone.patch_embed.projection.weight', 'backbone.patch_embed.norm.bias',
    'backbone.stages.0.blocks.1.norm1.weight', 'backbone.stages.0.blocks.1.attn.w_msa.qkv.weight',
    'backbone.stages.0.blocks.1.attn.w_msa.rel_pos_encoding.relative_position_bias_table',
    'backbone.stages.0.blocks.1.mlp.fc1.bias', 'backbone.stages.0.downsample.norm.weight',
    'backbone.stages.0.downsample.reduction.weight', 'backbone.stages.1.blocks.0.norm2.bias',
    'backbone.norm1.weight', 'head.fc.weight'}


def tensors(shapes):
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


def test_official_names_and_what_is_dropped():
    buffers = {'layers.0.blocks.1.attn_mask': (4, 4, 4),
               'layers.0.blocks.1.attn.relative_position_index': (4, 4)}
    converted = convert_with_report(tensors(OFFICIAL | buffers), 'swin')
    assert set(converted.state_dict) == EXPECTED
    assert set(converted.dropped) == set(buffers)
    assert 'computed from' in converted.dropped['layers.0.blocks.1.attn_mask']


def test_timm_counts_the_merging_to_the_stage_behind_it():
    timm = {name.replace('layers.0.downsample', 'layers.1.downsample').replace('head.', 'head.fc.'):
            shape for name, shape in OFFICIAL.items()}
    assert set(convert(tensors(timm), 'swin')) == EXPECTED


def test_norms_of_every_stage_keep_their_numbers():
    converted = convert(tensors({'norm0.weight': (4,), 'norm3.weight': (8,)}), 'swin')
    assert set(converted) == {'backbone.norm0.weight', 'backbone.norm3.weight'}


@pytest.mark.parametrize('source', ['mmpretrain-swin', 'mmdet-swin'])
def test_openmmlabs_merging_is_put_in_the_releases_order(source):
    """They unfold: channel, row, column. The release: column, row, channel."""
    unfolded = torch.tensor([100. * c + 10 * row + col
                             for c in range(3) for row in range(2) for col in range(2)])
    released = [100. * c + 10 * row + col
                for col in range(2) for row in range(2) for c in range(3)]
    state = {'stages.0.downsample.norm.weight': unfolded,
             'backbone.stages.1.downsample.reduction.weight': unfolded.repeat(2, 1)}
    converted = convert(state, source)
    assert converted['backbone.stages.0.downsample.norm.weight'].tolist() == released
    assert converted['backbone.stages.1.downsample.reduction.weight'].tolist() == [released] * 2


def test_a_merging_of_no_four_cells_is_named():
    with pytest.raises(ValueError, match=r'downsample.norm.weight has shape \(6,\); a multiple'):
        convert({'stages.0.downsample.norm.weight': torch.zeros(6)}, 'mmdet-swin')


def test_absolute_positions_of_the_first_stage_alone_are_refused():
    with pytest.raises(ValueError, match='absolute_pos_embed'):
        convert({'absolute_pos_embed': torch.zeros(1, 4, 4)}, 'swin')


def test_wrong_shapes_are_named():
    state = tensors(OFFICIAL | {'layers.0.blocks.1.attn.qkv.weight': (4, 4)})
    with pytest.raises(ValueError, match=r'w_msa.qkv.weight has \(4, 4\), required is \(12, 4\)'):
        convert(state, 'swin')
