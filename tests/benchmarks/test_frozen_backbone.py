"""benchmarks/frozen_backbone.py: frozen blocks run once, and nothing else changes."""
import pytest
import torch
from helpers.scripts import load_script

from mmposenc.backbones import ViT
from mmposenc.functional.image_sizes import set_img_shapes

frozen_backbone = load_script('benchmarks', 'frozen_backbone')


@pytest.mark.parametrize('frozen, known', [(2, (3, 6, 6, 9)), (3, (3, 6, 9, 12))])
def test_a_vit_that_remembers_gives_the_same_maps_and_gradients(frozen, known):
    def model(mask_padding=True, **encodings):
        torch.manual_seed(0)
        return ViT(embed_dims=32, num_layers=3, num_heads=2, patch_size=8, img_size=224,
                   out_indices=(0, 2), final_norm=False, frozen_stages=frozen,
                   mask_padding=mask_padding, **encodings).eval()

    memory, images = {}, torch.randn(3, 3, 24, 32)
    table = dict(pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))
    rotary = dict(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding', blocks=[2]))
    variants = table, {}, table | rotary, table | dict(mask_padding=False)
    for encodings, count in zip(variants, known, strict=True):
        plain, remembers = model(**encodings), model(**encodings)
        frozen_backbone.remember(remembers, memory)
        for order in ([2], [0, 1], [1, 0]):
            sizes = ((24, 32), (24, 32), (16, 20))
            batch = set_img_shapes(images[order], [sizes[index] for index in order])
            expected, found = plain(batch), remembers(batch)
            for one, other in zip(expected, found, strict=True):
                torch.testing.assert_close(one, other)
        assert len(memory) == count
        for each in (expected, found) if frozen == 2 else ():
            each[-1].square().sum().backward()
        for one, other in zip(plain.parameters(), remembers.parameters(), strict=True):
            assert (one.grad is None) == (other.grad is None)
            torch.testing.assert_close(one.grad, other.grad)
