"""Plain vision transformers under upstream's names: parts of files, masks of MAE."""
import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
import pytest
import torch
from helpers.tiny_backbones import randomize
from helpers.upstream_configs import build, theirs

from mmposenc.backbones import load_pretrained
from mmposenc.encodings import LearnedPositionEmbedding


def test_a_part_of_a_file_is_read_as_in_san():
    part = dict(type='Pretrained_Part', checkpoint='clip.pth')
    assert build('mmseg', 'VisionTransformer', init_cfg=part).init_cfg == dict(
        type='Pretrained', checkpoint='clip.pth', prefix='image_encoder.', strict=False)


def test_masked_patches_are_those_of_mmpretrain():
    upstream = randomize(theirs('mmpretrain', 'MAEViT', mask_ratio=0.6))
    ours = build('mmpretrain', 'MAEViT', mask_ratio=0.6)
    fresh = theirs('mmpretrain', 'MAEViT')
    fresh.init_weights()
    table, = (each for each in ours.modules() if isinstance(each, LearnedPositionEmbedding))
    torch.testing.assert_close(table.pos_embed, fresh.pos_embed)
    assert not table.pos_embed.requires_grad
    load_pretrained(ours, upstream.state_dict())
    outs = []
    for model in (ours, upstream):
        torch.manual_seed(5)
        outs.append(model(torch.linspace(-2, 2, 2 * 3 * 40 * 40).view(2, 3, 40, 40)))
    torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)
    assert outs[0][0].shape == (2, 11, 16) and outs[0][1].sum(1).tolist() == [15, 15]


@pytest.mark.parametrize('slot, kind', [('pos_encoding', 'PEG'), ('rel_pos_encoding', 'IRPE')])
def test_masked_patches_refuse_encodings_of_the_whole_grid(slot, kind):
    model = build('mmpretrain', 'MAEViT', **{slot: dict(type=f'mmposenc.{kind}')})
    with pytest.raises(ValueError, match=f'{kind} with mask=True'):
        model(torch.zeros(1, 3, 40, 40))
    assert model(torch.zeros(1, 3, 40, 40), mask=None)[0].shape == (1, 26, 16)
