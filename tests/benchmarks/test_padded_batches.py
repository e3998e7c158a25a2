"""What measures of padding share."""
from mmseg.models import ResNetV1c
from scripts import load_script

from mmposenc.backbones import PVT, ViT


def test_sides_are_of_maps_not_of_stages():
    sides = load_script('benchmarks', 'padded_batches').sides
    narrow = dict(depth=18, base_channels=4, stem_channels=4)
    dilated = ResNetV1c(**narrow, strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4))
    assert sides(ResNetV1c(**narrow)) == [4, 8, 16, 32]
    assert sides(dilated) == [4, 8, 8, 8] and dilated.strides == (1, 2, 1, 1)
    own = [PVT(embed_dims=(8,) * 4, num_heads=(1,) * 4, num_layers=(1,) * 4, mask_padding=True),
           ViT(embed_dims=8, num_heads=1, num_layers=1, patch_size=14, out_indices=(0,))]
    for backbone in own:
        assert sides(backbone) == list(backbone.strides)
