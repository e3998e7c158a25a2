"""Names of the official Swin Transformers, timm's, Hugging Face's, mmpretrain's and mmdet's."""
import pytest
import torch

from mmposenc.checkpoint import convert, convert_with_report, needed_options, recognise

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


V2 = {
    'patch_embed.proj.weight': (4, 3, 4, 4), 'patch_embed.norm.weight': (4,),
    'layers.0.blocks.1.attn.qkv.weight': (12, 4), 'layers.0.blocks.1.attn.q_bias': (4,),
    'layers.0.blocks.1.attn.v_bias': (4,), 'layers.0.blocks.1.attn.logit_scale': (2, 1, 1),
    'layers.0.blocks.1.attn.cpb_mlp.0.weight': (512, 2),
    'layers.0.blocks.1.attn.cpb_mlp.0.bias': (512,),
    'layers.0.blocks.1.attn.cpb_mlp.2.weight': (2, 512),
    'layers.0.blocks.1.attn.proj.weight': (4, 4), 'layers.0.blocks.1.norm1.weight': (4,),
    'layers.0.blocks.1.norm2.bias': (4,), 'layers.0.blocks.1.mlp.fc1.bias': (8,),
    'layers.0.blocks.1.mlp.fc1.weight': (8, 4),
    'layers.0.blocks.1.mlp.fc2.weight': (4, 8), 'layers.1.blocks.0.norm1.weight': (8,),
    'layers.1.downsample.norm.weight': (8,), 'layers.1.downsample.reduction.weight': (8, 16),
    'norm.weight': (8,), 'head.fc.weight': (5, 8)}
_ATTENTION = 'backbone.stages.0.blocks.1.attn.w_msa.'


def v2():
    torch.manual_seed(0)
    return {name: torch.randn(shape) for name, shape in V2.items()}


def hugging_face(state, kind='swinv2'):
    """In the names of transformers' Swinv2ForImageClassification (or Swin...)."""
    out = {}
    for name, value in state.items():
        if name.endswith(('qkv.weight', 'qkv.bias')):
            part = name.rsplit('.', 1)[1]
            block = name.replace('layers', 'encoder.layers').replace(
                f'attn.qkv.{part}', 'attention.self')
            for each, rows in zip(('query', 'key', 'value'), value.chunk(3), strict=True):
                out[f'{kind}.{block}.{each}.{part}'] = rows
            continue
        for ours, theirs in (
                ('patch_embed.proj.', 'embeddings.patch_embeddings.projection.'),
                ('patch_embed.norm.', 'embeddings.norm.'), ('layers.', 'encoder.layers.'),
                ('attn.q_bias', 'attention.self.query.bias'),
                ('attn.v_bias', 'attention.self.value.bias'),
                ('attn.cpb_mlp', 'attention.self.continuous_position_bias_mlp'),
                ('attn.logit_scale', 'attention.self.logit_scale'),
                ('attn.relative', 'attention.self.relative'),
                ('attn.proj', 'attention.output.dense'), ('.norm1', '.layernorm_before'),
                ('.norm2', '.layernorm_after'), ('mlp.fc1', 'intermediate.dense'),
                ('mlp.fc2', 'output.dense'), ('layers.1.downsample', 'layers.0.downsample')):
            name = name.replace(ours, theirs)
        name = 'layernorm.weight' if name == 'norm.weight' else name
        out['classifier.weight' if name == 'head.fc.weight' else f'{kind}.{name}'] = value
    return out


def mmpretrain(state):
    out = {}
    for name, value in state.items():
        if name.endswith('reduction.weight'):  # unfolded: channel, row, column
            value = value.unflatten(-1, (2, 2, 4)).transpose(-1, -3).flatten(-3)
        for ours, theirs in (('patch_embed.proj', 'patch_embed.projection'), ('layers', 'stages'),
                             ('attn.', 'attn.w_msa.'), ('mlp.fc1', 'ffn.layers.0.0'),
                             ('mlp.fc2', 'ffn.layers.1')):
            name = name.replace(ours, theirs)
        name = 'norm1.weight' if name == 'norm.weight' else name
        out[name if name.startswith('head') else f'backbone.{name}'] = value
    return out


def official(state):
    return {name.replace('layers.1.downsample', 'layers.0.downsample').replace('head.fc', 'head'):
            value for name, value in state.items()}


@pytest.mark.parametrize('rename, source', [
    (official, 'swin'), (hugging_face, 'swin'), (mmpretrain, 'mmpretrain-swin')])
def test_v2_comes_by_every_name(rename, source):
    expected, state = convert(v2(), 'swin'), rename(v2())
    assert _ATTENTION + 'cosine.logit_scale' in expected
    assert _ATTENTION + 'qkv.v_bias' in expected
    assert 'backbone.stages.0.downsample.reduction.weight' in expected
    assert recognise(state) == source
    converted = convert(state, source)
    assert set(converted) == set(expected)
    for name, value in expected.items():
        assert torch.equal(converted[name], value), name


def test_hugging_faces_v1_is_joined_with_the_bias_of_its_keys():
    state = tensors({name: shape for name, shape in OFFICIAL.items() if 'downsample' not in name}
                    | {'layers.0.blocks.1.attn.qkv.bias': (12,)})
    state = {name: torch.randn_like(value) for name, value in state.items()}
    renamed = hugging_face({name.replace('head', 'head.fc'): value
                            for name, value in state.items()}, 'swin')
    assert recognise(renamed) == 'swin'
    for name, value in convert(state, 'swin').items():
        assert torch.equal(convert(renamed, 'swin')[name], value)


def test_buffers_of_v2_are_dropped_by_the_names_of_the_file():
    buffers = {'layers.0.blocks.1.attn.relative_coords_table': torch.zeros(1, 3, 3, 2),
               'layers.0.blocks.1.attn.relative_position_index': torch.zeros(4, 4)}
    state = hugging_face(v2() | buffers)
    state['swinv2.embeddings.mask_token'] = torch.zeros(1, 1, 4)
    dropped = convert_with_report(state, 'swin').dropped
    block = 'swinv2.encoder.layers.0.blocks.1.attention.self.'
    assert set(dropped) == {block + 'relative_coords_table', block + 'relative_position_index',
                            'swinv2.embeddings.mask_token'}
    assert 'pretraining' in dropped['swinv2.embeddings.mask_token']


def test_what_is_unknown_is_told_by_the_names_of_the_file():
    state = hugging_face(v2()) | {'swinv2.encoder.layers.0.blocks.1.layernorm_last.weight':
                                  torch.zeros(4)}
    with pytest.raises(ValueError, match=r'1 of \d+ parameters: swinv2.encoder.layers.0.b'):
        convert(state, 'swin')


def test_two_names_of_the_same_weights_are_told():
    with pytest.raises(ValueError, match='head.fc.weight, head.weight are names of the same'):
        convert(v2() | {'head.weight': torch.zeros(5, 8)}, 'swin')


def test_what_v2_needs_of_a_backbone():
    assert needed_options(convert(v2(), 'swin')) == [
        f'model.backbone.{option}' for option in (
            'embed_dims=4', 'num_layers=(1,1,)', 'num_heads=(2,)', 'cosine=True', 'post_norm=True',
            'qkv_bias=qv', 'window_bias=log_cpb')]
    wide = convert(v2(), 'swin') | {
        'backbone.patch_embed.projection.weight': torch.zeros(96, 3, 4, 4),
        **{f'backbone.stages.2.blocks.{i}.norm1.weight': torch.zeros(384) for i in range(6)}}
    assert needed_options(wide) == ['model.backbone.arch=v2-tiny']
