"""BEiT and vit_relpos: tables of other grids, shared ones, what they need, what has no place."""
# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import pytest
import torch
from helpers.tiny_backbones import randomize, unfilled
from timm.models.beit import Beit, checkpoint_filter_fn
from timm.models.vision_transformer_relpos import ResPostRelPosBlock, VisionTransformerRelPos

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.backbones.archs import needed_options
from mmposenc.checkpoint import convert_with_report, recognise

SIZES = dict(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5)
OURS = dict(arch='beit-base', img_size=32, patch_size=8, embed_dims=24, num_layers=2, num_heads=3)


def timm(**options):
    return randomize(Beit(**SIZES, use_abs_pos_emb=False, init_values=0.1,
                       **{'use_rel_pos_bias': True, **options}), 0.3).eval()


def test_a_file_of_another_grid_is_resized_as_timm_does():
    state = timm().state_dict()
    theirs = Beit(**{**SIZES, 'img_size': (48, 56)}, use_abs_pos_emb=False, use_rel_pos_bias=True,
                  init_values=0.1).eval()
    theirs.load_state_dict(checkpoint_filter_fn(state, theirs))
    ours = ViT(**{**OURS, 'img_size': (48, 56)}).eval()
    load_pretrained(ours, state)
    assert ours.blocks[0].attn.rel_pos_encoding.window_size == (6, 7)
    x = torch.randn(1, 3, 48, 56)
    expected = theirs.forward_head(theirs.forward_features(x), pre_logits=True)
    torch.testing.assert_close(ours(x)[0], expected, atol=1e-5, rtol=1e-5)


def test_tables_that_pretraining_shares_go_to_every_block():
    """As in the release's fine-tuning."""
    state = randomize(Beit(**SIZES, use_abs_pos_emb=False, init_values=0.1,
                        use_shared_rel_pos_bias=True, use_fc_norm=False)).state_dict()
    ours = ViT(**OURS, out_indices=(0, 1))
    load_pretrained(ours, state)
    shared = state['rel_pos_bias.relative_position_bias_table']
    for block in ours.blocks:
        encoding = block.attn.rel_pos_encoding
        assert torch.equal(encoding.relative_position_bias_table, shared[:-3])
        assert torch.equal(encoding.prefix_bias, shared[-3:].t())
    with pytest.raises(ValueError, match='missing: fc_norm.weight, fc_norm.bias'):
        load_pretrained(ViT(**OURS), state)


def test_needs_and_what_has_no_place():
    converted = convert_with_report(timm().state_dict(), 'beit').state_dict
    assert {'model.backbone.qkv_bias=qv', 'model.backbone.final_norm=pooled'} <= set(
        needed_options(converted))
    sizes = dict(img_size=64, patch_size=8, embed_dim=768, num_heads=12, num_classes=0)
    with unfilled():
        pretrained = Beit(**sizes, use_abs_pos_emb=False, use_shared_rel_pos_bias=True,
                          use_fc_norm=False)
        middle = VisionTransformerRelPos(**sizes, qkv_bias=False, class_token=True, rel_pos_dim=256,
                                         global_pool='token')
    for model, options in ((pretrained, ['arch=beit-base', 'patch_size=8', 'img_size=64',
                                         'layer_scale_init_value=None', 'rel_pos_sharing=all',
                                         'pool=cls', 'final_norm=True']),
                           (middle, ['arch=relpos-base', 'patch_size=8',
                                     'rel_pos_encoding.hidden_dims=256', 'class_token=True',
                                     'pool=cls', 'final_norm=True'])):
        state = model.state_dict()
        assert needed_options(convert_with_report(state, recognise(state)).state_dict) == [
            f'model.backbone.{option}' for option in options]
    behind = VisionTransformerRelPos(**SIZES, block_fn=ResPostRelPosBlock).state_dict()
    with pytest.raises(ValueError, match='a vit_relpos with its norms after attention and MLP'):
        load_pretrained(ViT(**OURS), behind)
