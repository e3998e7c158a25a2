"""From a model of timm to ours and back: every tensor the same, under the same name.

An example of each class of timm's models, with its head; each source that goes back (``TIMM``) has
one. tests/backbones/test_timm.py does the same for more models.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import pytest
import timm.models.beit
import timm.models.deit
import timm.models.eva
import timm.models.pvt_v2
import timm.models.swin_transformer
import timm.models.swin_transformer_v2
import timm.models.twins
import timm.models.vision_transformer
import timm.models.vision_transformer_relpos
import timm.models.vision_transformer_sam
import torch
from torch import Tensor, nn

from mmposenc.checkpoint import TIMM, convert, convert_back, convert_with_report, recognise

models = timm.models
SIZES = dict(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5)
ViT = partial(models.vision_transformer.VisionTransformer, **SIZES)
Eva = partial(models.eva.Eva, **SIZES)
Beit = partial(models.beit.Beit, **SIZES)
RelPos = partial(models.vision_transformer_relpos.VisionTransformerRelPos, **SIZES)
Swin = dict(img_size=32, patch_size=4, embed_dim=12, depths=(2, 1), num_heads=(2, 4),
            window_size=4, num_classes=5)
ROPE = dict(use_rot_pos_emb=True, use_abs_pos_emb=False)
DINOV3 = dict(**ROPE, rope_type='dinov3', num_reg_tokens=4, qkv_bias=True, init_values=1.0,
              use_fc_norm=False, global_pool='avg')

EXAMPLES: dict[str, Callable[[], nn.Module]] = {
    'vit': ViT, 'vit without a bias': partial(ViT, qkv_bias=False),
    'vit, mean normed': partial(ViT, global_pool='avg'),
    'deit, distilled': partial(models.deit.VisionTransformerDistilled, **SIZES),
    'dinov3': partial(Eva, **DINOV3),
    'beit': partial(Beit, use_abs_pos_emb=False, use_rel_pos_bias=True, init_values=0.1),
    'relpos': partial(RelPos, init_values=1.0),
    'sam': partial(models.vision_transformer_sam.VisionTransformerSAM, **SIZES | dict(
        num_classes=0), use_rel_pos=True, window_size=2, global_attn_indexes=(1,), neck_chans=16),
    'swin': partial(models.swin_transformer.SwinTransformer, **Swin),
    'swinv2': partial(models.swin_transformer_v2.SwinTransformerV2, **Swin),
    'twins': partial(models.twins.Twins, img_size=64, embed_dims=(8, 8, 16, 16),
                     num_heads=(1, 1, 2, 2), mlp_ratios=(2, 2, 2, 2), depths=(2, 1, 1, 1),
                     sr_ratios=(8, 4, 2, 1), num_classes=5, wss=(7, 7, 7, 7)),
    'pvt v2': partial(models.pvt_v2.PyramidVisionTransformerV2, depths=(1, 1, 1, 1),
                      embed_dims=(8, 8, 16, 16), num_heads=(1, 1, 2, 2), mlp_ratios=(2, 2, 2, 2),
                      num_classes=5),
}


def source_of(state: Mapping[str, Tensor]) -> str | None:
    """Its source, if it is supported."""
    try:
        source = recognise(state)
        convert(state, source)
    except ValueError:
        return None
    return source


SOURCE_OF = {name: source_of(build().state_dict()) for name, build in EXAMPLES.items()}


def test_every_source_that_goes_back_has_an_example() -> None:
    assert set(TIMM) <= set(SOURCE_OF.values())


@pytest.mark.parametrize('name', [name for name in EXAMPLES if SOURCE_OF[name] in TIMM])
def test_round_trip(name) -> None:
    model, source = EXAMPLES[name](), SOURCE_OF[name]
    state = {key: torch.randn_like(value) if value.is_floating_point() else value
             for key, value in model.state_dict().items()}
    ours = convert_with_report(state, source)
    for told in (source, None):
        theirs = convert_back(ours.state_dict, told)
        assert not theirs.dropped
        assert set(theirs.state_dict) == set(state) - set(ours.dropped)
        assert all(torch.equal(value, state[key]) and value.dtype == state[key].dtype
                   for key, value in theirs.state_dict.items())
    fit = model.load_state_dict(theirs.state_dict, strict=not ours.dropped)
    assert set(fit.missing_keys) == set(ours.dropped) and not fit.unexpected_keys
