"""What single converters do beside renaming: tables of other grids, tokens, and refusals."""
from functools import partial

import pytest
import torch
from helpers.tiny_backbones import randomize
from timm.models.beit import Beit, checkpoint_filter_fn
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_relpos import ResPostRelPosBlock, VisionTransformerRelPos
from timm.models.vision_transformer_sam import VisionTransformerSAM
from torch import nn

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.checkpoint import convert, convert_back

BASE = dict(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5)
BEIT = partial(Beit, **BASE, use_abs_pos_emb=False, init_values=0.1)
OURS = dict(arch='beit-base', img_size=32, patch_size=8, embed_dims=24, num_layers=2, num_heads=3)


def test_a_beit_of_another_grid_is_resized_as_timm_does():
    state = randomize(BEIT(use_rel_pos_bias=True), 0.3).state_dict()
    theirs = BEIT(use_rel_pos_bias=True, img_size=(48, 56)).eval()
    theirs.load_state_dict(checkpoint_filter_fn(state, theirs))
    ours = ViT(**{**OURS, 'img_size': (48, 56)}).eval()
    load_pretrained(ours, state)
    x = torch.randn(1, 3, 48, 56)
    expected = theirs.forward_head(theirs.forward_features(x), pre_logits=True)
    torch.testing.assert_close(ours(x)[0], expected, atol=1e-5, rtol=1e-5)


def test_tables_that_pretraining_shares_go_to_every_block():
    """As in the release's fine-tuning."""
    state = randomize(BEIT(use_shared_rel_pos_bias=True, use_fc_norm=False)).state_dict()
    ours = ViT(**OURS, out_indices=(0, 1))
    load_pretrained(ours, state)
    shared = state['rel_pos_bias.relative_position_bias_table']
    for block in ours.blocks:
        encoding = block.attn.rel_pos_encoding
        assert torch.equal(encoding.relative_position_bias_table, shared[:-3])
        assert torch.equal(encoding.prefix_bias, shared[-3:].t())
    with pytest.raises(ValueError, match='missing: fc_norm.weight, fc_norm.bias'):
        load_pretrained(ViT(**OURS), state)


SAM = VisionTransformerSAM(
    img_size=28, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=0, use_rel_pos=True,
    window_size=3, global_attn_indexes=(1,), neck_chans=6)
OUR_SAM = partial(ViT, patch_size=4, embed_dims=16, num_layers=2, num_heads=2, pool=None,
                  final_norm=False, window_size=3, global_blocks=(1,), mask_window_padding=False,
                  rel_pos_encoding=dict(type='mmposenc.DecomposedRPE'))
CELLS = dict(type='mmposenc.LearnedPositionEmbedding', grid_shape=(4, 4))


def test_the_row_of_a_class_token_is_left_out_of_vitdets_table():
    """Its pretraining had the token; nothing reads it."""
    cells = torch.randn(1, 16, 16)
    state = {f'backbone.net.{name}': value for name, value in SAM.state_dict().items()
             if not name.startswith('neck.')}
    state['backbone.net.pos_embed'] = torch.cat((torch.randn(1, 1, 16), cells), 1)
    model = OUR_SAM(img_size=28, pos_encoding=CELLS)
    load_pretrained(model, state)
    assert torch.equal(model.pos_encodings.encodings(-1)[0].pos_embed, cells)


def test_sams_tables_of_rows_and_columns_are_resized_and_its_neck_is_left_out():
    state = randomize(SAM).state_dict()
    model = OUR_SAM(img_size=(16, 40), pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))
    load_pretrained(model, state)
    for axis, name, length in (('h', 'row_table', 7), ('w', 'col_table', 19)):
        table = state[f'blocks.1.attn.rel_pos_{axis}']
        expected = nn.functional.interpolate(table.T[None], length, mode='linear')[0].T
        torch.testing.assert_close(
            model.blocks[1].attn.rel_pos_encoding.get_parameter(name), expected)


def test_vitdet_starts_from_a_plain_transformer():
    """MAE's files: relative positions are new, the class token and the last norm are left out."""
    plain = VisionTransformer(img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2,
                              num_classes=0)
    model = OUR_SAM(img_size=28, pos_encoding=CELLS)
    load_pretrained(model, plain.state_dict())
    assert torch.equal(model.blocks[1].mlp.fc2.weight, plain.blocks[1].mlp.fc2.weight)
    assert torch.equal(model.pos_encodings.encodings(-1)[0].pos_embed, plain.pos_embed[:, 1:])
    assert not model.blocks[1].attn.rel_pos_encoding.row_table.any()


def test_sam_goes_back_where_its_table_is_a_square():
    ours = convert(SAM.state_dict(), 'sam')
    assert set(convert_back(ours).state_dict) == set(SAM.state_dict())
    table = 'backbone.pos_encodings.at.before.0.pos_embed'
    with pytest.raises(ValueError, match='pos_embed has 45 cells; a square number is required'):
        convert_back({**ours, table: torch.ones(1, 45, 16)})


LAST = 'swinv2.encoder.layers.0.blocks.1.layernorm_last.weight'


@pytest.mark.parametrize('names, source, said', [
    (['stages.0.downsample.norm.weight'], 'mmdet-swin',
     r'downsample.norm.weight has shape \(6,\); a multiple'),
    (['absolute_pos_embed'], 'swin', 'absolute_pos_embed'),
    ([LAST], 'swin', f'1 of 1 parameters: {LAST}'),
    (['head.weight', 'head.fc.weight'], 'swin', 'head.weight, head.fc.weight are names of the sam'),
    (['backbone.1.row_embed.weight'], 'irpe-detr', 'row_embed.weight is a learned table of rows'),
    (['network.encoder.backbone.patch_embed.cls_token'], 'eomt', 'differences to those of DINOv3'),
    (list(VisionTransformerRelPos(**BASE, block_fn=ResPostRelPosBlock).state_dict()), 'relpos',
     'a vit_relpos with its norms after attention and MLP'),
    (['norm.weight', 'block9.q', 'what.is.this'], 'pvt',
     "source='pvt' has no rule for 2 of 3 parameters: block9.q, what.is.this"),
    (['norm.weight'], 'pvt2', "source='pvt2' must be one of 'pvt', 'twins'"),
    *(([name], 'deit', "source='deit' has no rule for 1 of 1 parameters") for name in (
        'blocks.x.norm1.bias', 'blocks.1.norm1.scale', 'blocks11norm1.bias'))])
def test_what_does_not_fit_is_named(names, source, said):
    with pytest.raises(ValueError, match=said):
        convert({name: torch.zeros(6) for name in names}, source)


def test_what_timm_has_no_place_for_is_named() -> None:
    table = {'pos_encodings.at.before.0.pos_embed': torch.ones(1, 4, 2)}
    with pytest.raises(ValueError, match="rel_pos_encoding.table_k have no place .*'deit'"):
        convert_back({**table, 'blocks.0.attn.rel_pos_encoding.table_k': torch.ones(2)}, 'deit')
    with pytest.raises(ValueError, match='these are weights of none of the models of timm'):
        convert_back({'stages.0.blocks.0.norm1.weight': torch.ones(2)}, 'deit')
    with pytest.raises(ValueError, match="source='pvt' must be one of .*'deit'.*, to go back to"):
        convert_back(table, 'pvt')
    back = convert_back({**{f'backbone.{k}': v for k, v in table.items()},
                         'head.fc.bias': torch.ones(3), 'neck.bias': torch.ones(1)})
    assert set(back.state_dict) == {'pos_embed', 'head.bias'}
    assert 'no place' in back.dropped['neck.bias']


@pytest.mark.parametrize('source, names', [
    ('swin', {'norm0.weight': 'backbone.norm0.weight', 'norm3.weight': 'backbone.norm3.weight'}),
    ('deit', {'dist_token': 'backbone.dist_token', 'head.weight': 'head.layers.head.weight',
              'head_dist.weight': 'head.layers.head_dist.weight',
              'head_dist.bias': 'head.layers.head_dist.bias'})])
def test_norms_of_maps_and_heads_of_distilled_models_have_their_names(source, names):
    assert list(convert({name: torch.ones(4) for name in names}, source)) == list(names.values())
