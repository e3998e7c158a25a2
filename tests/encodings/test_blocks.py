"""Encodings that some blocks have, and others not."""
import pytest
import torch
from helpers.tiny_backbones import BUILD, images, randomize

from mmposenc.detr import DetrEncoder

ROPE, PEG = dict(type='RotaryEmbedding'), dict(type='PEG')
TABLE = dict(type='RelativePositionBias')


def test_a_block_is_the_one_of_a_model_that_has_its_encodings_everywhere():
    two = [dict(TABLE, blocks=[0, 2]), dict(ROPE, blocks=[2, 3])]
    mixed = randomize(BUILD['vit'](rel_pos_encoding=two, window_size=2,
                                   pos_encoding=dict(PEG, blocks=[0, 1]))).double()
    everywhere = {name: BUILD['vit'](rel_pos_encoding=cfg, window_size=2, pos_encoding=PEG,
                                     positions=[0, 1]).double()
                  for name, cfg in (('both', [TABLE, ROPE]), ('table', TABLE), ('rope', ROPE),
                                    ('none', None))}
    whole = everywhere['none']
    for index, name in enumerate(('table', 'none', 'both', 'rope')):
        whole.blocks[index] = everywhere[name].blocks[index]
    whole.load_state_dict(mixed.state_dict())
    for got, expected in zip(mixed(images().double()), whole(images().double()), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize('kind', ['pvt', 'swin'])
def test_blocks_are_counted_through_the_stages_and_layers(kind):
    model = BUILD[kind](rel_pos_encoding=dict(ROPE, blocks=[2]),
                        pos_encoding=dict(PEG, blocks=[0, 2]))
    assert [list(stage.pos_encodings.at) for stage in model.stages] == [['after0'], ['after1']]
    encoder = DetrEncoder(3, dict(self_attn_cfg=dict(embed_dims=8, num_heads=2),
                                  ffn_cfg=dict(embed_dims=8, feedforward_channels=8)),
                          rel_pos_encoding=dict(ROPE, blocks=[2]))
    for each in (model, encoder):
        assert [module.rel_pos_encoding is not None for module in each.modules()
                if hasattr(module, 'rel_pos_encoding')] == [False, False, True]


@pytest.mark.parametrize('options, message', [
    (dict(pos_encoding=dict(PEG, blocks=[2, 4])), r'blocks=\[2, 4\]: .* the blocks 0 to 3'),
    (dict(rel_pos_encoding=dict(ROPE, blocks=[4])), r'blocks=\[4\]: .* the blocks 0 to 3'),
    (dict(rel_pos_encoding=dict(ROPE, blocks=[])), r'blocks=\[\] must be different numbers'),
    (dict(pos_encoding=dict(PEG, blocks=[1, 1])), r'blocks=\[1, 1\] must be different numbers'),
    (dict(pos_encoding=dict(PEG, blocks='0-1')), "blocks='0-1' must be different numbers"),
    (dict(rel_pos_encoding=dict(ROPE, blocks=[1]), rel_pos_sharing='all'), "not 'all'"),
    (dict(pos_encoding=dict(type='ConvMLP', blocks=[1])), 'inside MLPs takes no blocks')])
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BUILD['vit'](**options)
