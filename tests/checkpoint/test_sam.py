"""SAM's and ViTDet's weights: tables, other sizes, what they need and what has no place."""
# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_sam import VisionTransformerSAM
from torch import nn

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.backbones.archs import needed_options
from mmposenc.checkpoint import convert, convert_back

SMALL = dict(patch_size=4, embed_dims=16, num_layers=2, num_heads=2, img_size=28, pool=None,
             final_norm=False, window_size=3, global_blocks=(1,), mask_window_padding=False,
             pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
             rel_pos_encoding=dict(type='mmposenc.DecomposedRPE'))


def timms() -> dict[str, torch.Tensor]:
    model = VisionTransformerSAM(
        img_size=28, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=0,
        use_rel_pos=True, window_size=3, global_attn_indexes=(1,), neck_chans=6)
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.state_dict()


def test_tables_of_vitdet() -> None:
    """An entry of the class token that pretraining had, and which nothing reads, comes first."""
    state = timms()
    cells = torch.randn(1, 16, 16)
    state = {f'backbone.net.{name}': value for name, value in state.items()
             if not name.startswith('neck.')}
    state['backbone.net.pos_embed'] = torch.cat((torch.randn(1, 1, 16), cells), 1)
    table = dict(type='mmposenc.LearnedPositionEmbedding', grid_shape=(4, 4))
    model = ViT(**{**SMALL, 'pos_encoding': table})
    load_pretrained(model, state)
    assert torch.equal(model.pos_encodings.encodings(-1)[0].pos_embed, cells)


def test_another_size_and_no_neck() -> None:
    """Tables are resized to the model's grid; a neck that the model has not is left out."""
    model = ViT(**{**SMALL, 'img_size': (16, 40)})
    load_pretrained(model, timms())
    state = timms()
    for block, (rows, cols) in ((0, (5, 5)), (1, (7, 19))):
        for axis, length in (('h', rows), ('w', cols)):
            table = state[f'blocks.{block}.attn.rel_pos_{axis}']
            expected = nn.functional.interpolate(table.T[None], length, mode='linear')[0].T
            encoding = model.blocks[block].attn.rel_pos_encoding
            got = encoding.row_table if axis == 'h' else encoding.col_table
            torch.testing.assert_close(got, expected)
    assert model.pos_encodings.encodings(-1)[0].pos_embed.shape == (1, 40, 16)


def test_vitdet_starts_from_a_plain_transformer() -> None:
    """MAE's files: relative positions are new, the class token and the last norm are left out."""
    plain = VisionTransformer(img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2,
                              num_classes=0)
    table = dict(type='mmposenc.LearnedPositionEmbedding', grid_shape=(4, 4))
    model = ViT(**{**SMALL, 'pos_encoding': table})
    load_pretrained(model, plain.state_dict())
    assert torch.equal(model.blocks[1].mlp.fc2.weight, plain.blocks[1].mlp.fc2.weight)
    assert torch.equal(model.pos_encodings.encodings(-1)[0].pos_embed, plain.pos_embed[:, 1:])
    assert not model.blocks[1].attn.rel_pos_encoding.row_table.any()


def test_needs_and_back() -> None:
    ours = convert(timms(), 'sam')
    needs = needed_options(ours)
    assert {f'model.backbone.{option}' for option in (
        'patch_size=4', 'img_size=28', 'window_size=3', 'global_blocks=(1,)', 'final_norm=False',
        'rel_pos_encoding.type=mmposenc.DecomposedRPE', 'mask_window_padding=False',
        'neck_channels=6', 'pool=None')} <= set(needs)
    assert set(convert_back(ours).state_dict) == set(timms())
    table = 'backbone.pos_encodings.at.before.0.pos_embed'
    with pytest.raises(ValueError, match='pos_embed has 45 cells; a square number is required'):
        convert_back({**ours, table: torch.ones(1, 45, 16)})
