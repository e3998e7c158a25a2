"""Pixel decoders: mmdet's without encodings, and what encodings do in them."""
import copy
from typing import Any

import pytest
import torch
from helpers.tiny_detr import IRPE, LEARNED, PEG, assert_gradients, build, gradients
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, init_default_scope

from mmposenc.detr import DetrEncoder

DENSE, SPARSE = 'TransformerEncoderPixelDecoder', 'MSDeformAttnPixelDecoder'
CHANNELS = dict(in_channels=[4, 6, 8, 10], feat_channels=16, out_channels=12,
                norm_cfg=dict(type='GN', num_groups=4))
GRIDS = ((16, 24), (8, 12), (4, 6), (2, 3))
METAS = [dict(batch_input_shape=(64, 96), img_shape=shape) for shape in ((64, 96), (40, 64))]


def config(name: str, scope: str = 'mmposenc.', attn: dict | None = None,
           **encoder: Any) -> ConfigDict:
    sizes = {} if name == DENSE else dict(num_levels=3, num_points=2)
    return ConfigDict(
        type=scope + name, positional_encoding=dict(num_feats=8, normalize=True), **CHANNELS,
        **({} if name == DENSE else dict(strides=[4, 8, 16, 32])),
        encoder=dict(num_layers=2, **encoder, layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=16, num_heads=2, dropout=0.0, **sizes, **(attn or {})),
            ffn_cfg=dict(embed_dims=16, feedforward_channels=24, num_fcs=2, ffn_drop=0.0,
                         act_cfg=dict(type='ReLU', inplace=True)))))


def run(model: torch.nn.Module, last: float = 0.0) -> list[torch.Tensor]:
    """All outputs for maps of two images, with a number in the padding of the last map. The pixel
    decoder of MaskFormer is told the images' sizes."""
    generator = torch.Generator().manual_seed(0)
    maps = [torch.randn(2, c, *hw, generator=generator)
            for c, hw in zip(CHANNELS['in_channels'], GRIDS, strict=True)]
    maps[-1][1, :, :, 2:] = last
    dense = type(model).__name__ == DENSE
    mask, memory = model(maps, METAS) if dense else model(maps)
    return [mask, *([memory] if dense else memory)]


@pytest.mark.parametrize('name', [DENSE, SPARSE])
def test_without_encodings_it_is_mmdets(name: str) -> None:
    """Outputs and gradients with the same weights, on a batch of which one image is padded."""
    theirs, ours = build(config(name, '')), build(config(name), seed=1)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert isinstance(ours.encoder, DetrEncoder)
    results = [run(model.train()) for model in (theirs, ours)]
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)
    for outs in results:
        sum(out.square().sum() for out in outs).backward()
    assert_gradients(gradients(ours), gradients(theirs))


ALL = dict(encoder_pos='learned', pos_encoding=PEG, attn=dict(rel_pos_encoding=IRPE))


@pytest.mark.parametrize('name, options', [
    (DENSE, ALL),
    (SPARSE, dict(encoder_pos=None, pos_encoding=PEG, positions=(-1, 0))),
    (SPARSE, dict(encoder_pos=LEARNED)),
    (SPARSE, dict(pos_encoding=PEG, pos_encoding_shared=True))])
def test_encodings_start_as_they_should_and_all_of_it_trains(name: str, options: dict) -> None:
    init_default_scope('mmdet')
    model = MODELS.build(copy.deepcopy(config(name, **options)))
    model.init_weights()
    for key, module in model.named_modules():
        if type(module).__name__ == 'PEG':  # normal of variance 2 / 9; Xavier's is below 0.17
            assert 0.3 < module.proj[0].weight.std() < 0.65
        if key.endswith('rel_pos_encoding'):
            assert not module.table_k.any()
    model = build(config(name, **options)).train()
    sum(out.square().sum() for out in run(model)).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), key
        # Biases of keys move all logits of a query alike.
        assert parameter.grad.any() or 'in_proj_bias' in key, key
    assert not model.encoder._forward_pre_hooks


def test_padding_changes_nothing_in_the_encoder_of_maskformer() -> None:
    """What lies in the padded cells of the last map does not reach the others."""
    model = build(config(DENSE, **ALL)).eval()
    before, after = run(model)[1], run(model, 50.0)[1]
    torch.testing.assert_close(after[1, :, :, :2], before[1, :, :, :2], atol=2e-5, rtol=1e-4)
    assert (after[1, :, :, 2] - before[1, :, :, 2]).abs().max() > 0.1
    torch.testing.assert_close(after[0], before[0])


@pytest.mark.parametrize('name, options, message', [
    (SPARSE, dict(attn=dict(rel_pos_encoding=IRPE)), 'deformable attention has no logits of pairs'),
    (DENSE, dict(skip_padding=True), 'convolutions after the encoder read padded tokens'),
    (DENSE, dict(encoder_pos='cosine'), "encoder.encoder_pos='cosine' must be"),
    (DENSE, dict(pos_encoding=dict(type='mmposenc.PEG', padding='none')), 'changes the grid')])
def test_contradictions_are_named(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(config(name, **options))
