"""Pixel decoders: mmdet's without encodings, and what encodings do in them."""
import copy
from typing import Any

import pytest
import torch
from helpers.tiny_detr import IRPE, LEARNED, PEG, assert_gradients, gradients
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, init_default_scope

import mmposenc  # noqa: F401
from mmposenc.detr import DetrEncoder

DENSE, SPARSE = 'TransformerEncoderPixelDecoder', 'MSDeformAttnPixelDecoder'
CHANNELS = dict(in_channels=[4, 6, 8, 10], feat_channels=16, out_channels=12,
                norm_cfg=dict(type='GN', num_groups=4))
GRIDS = ((16, 24), (8, 12), (4, 6), (2, 3))
METAS = [dict(batch_input_shape=(64, 96), img_shape=shape) for shape in ((64, 96), (40, 64))]


def config(name: str, scope: str = 'mmposenc.', attn: dict | None = None,
           **encoder: Any) -> ConfigDict:
    attention = dict(embed_dims=16, num_heads=2, **({} if name == DENSE else dict(
        num_levels=3, num_points=2)), dropout=0.0, **(attn or {}))
    kwargs = dict(CHANNELS) if name == DENSE else dict(CHANNELS, strides=[4, 8, 16, 32])
    return ConfigDict(
        type=scope + name, positional_encoding=dict(num_feats=8, normalize=True), **kwargs,
        encoder=dict(num_layers=2, **encoder, layer_cfg=dict(
            self_attn_cfg=attention,
            ffn_cfg=dict(embed_dims=16, feedforward_channels=24, num_fcs=2, ffn_drop=0.0,
                         act_cfg=dict(type='ReLU', inplace=True)))))


def build(cfg: ConfigDict, seed: int = 0):
    init_default_scope('mmdet')
    torch.manual_seed(seed)
    model = MODELS.build(copy.deepcopy(cfg))
    model.init_weights()
    return model


def features(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, c, *hw, generator=generator)
            for c, hw in zip(CHANNELS['in_channels'], GRIDS, strict=True)]


def run(model, maps):
    """All outputs as a list; MaskFormer's is told the images' sizes."""
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
    results = [run(model.train(), features()) for model in (theirs, ours)]
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)
    for outs in results:
        sum(out.square().sum() for out in outs).backward()
    assert_gradients(gradients(ours), gradients(theirs))


WAYS = {
    'peg': (DENSE, dict(encoder_pos=None, pos_encoding=PEG)),
    'irpe': (DENSE, dict(attn=dict(rel_pos_encoding=IRPE))),
    'learned, irpe, peg': (DENSE, dict(encoder_pos='learned', pos_encoding=PEG,
                                       attn=dict(rel_pos_encoding=IRPE))),
    'deformable peg': (SPARSE, dict(encoder_pos=None, pos_encoding=PEG, positions=(-1, 0))),
    'deformable table': (SPARSE, dict(encoder_pos=LEARNED)),
    'deformable shared': (SPARSE, dict(pos_encoding=PEG, pos_encoding_shared=True)),
}


@pytest.mark.parametrize('way', WAYS)
def test_every_parameter_gets_a_gradient_and_encodings_start_as_they_should(way: str) -> None:
    name, options = WAYS[way]
    model = build(config(name, **options)).train()
    for n, p in model.named_parameters():
        assert 'rel_pos_encoding' not in n or not p.any(), n
    for _, module in model.named_modules():
        if type(module).__name__ == 'PEG':  # normal of variance 2 / 9; Xavier's is below 0.17
            assert 0.3 < module.proj[0].weight.std() < 0.65
    with torch.no_grad():
        for p in model.encoder.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    sum(out.square().sum() for out in run(model, features())).backward()
    for n, p in model.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all(), n
        # keys' biases move all logits of a query alike
        assert p.grad.any() or 'in_proj_bias' in n, n
    assert not model.encoder._forward_pre_hooks


def test_padding_changes_nothing_in_the_encoder_of_maskformer() -> None:
    """What lies in the padded cells of the last map does not reach the others."""
    model = build(config(DENSE, encoder_pos='learned', pos_encoding=PEG,
                         attn=dict(rel_pos_encoding=IRPE))).eval()
    with torch.no_grad():
        for p in model.encoder.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    maps, other = features(), features()
    other[-1][1, :, :, 2:] = 50.0
    before, after = run(model, maps)[1], run(model, other)[1]
    torch.testing.assert_close(after[1, :, :, :2], before[1, :, :, :2], atol=2e-5, rtol=1e-4)
    assert (after[1, :, :, 2] - before[1, :, :, 2]).abs().max() > 0.1
    torch.testing.assert_close(after[0], before[0])


def test_positions_are_those_asked_for() -> None:
    """The tables are added where sines were, resized to an image's own cells; None adds nothing."""
    found = []
    for kind in ('learned', None):
        model = build(config(DENSE, encoder_pos=kind))
        model.encoder.register_forward_pre_hook(
            lambda module, args, kwargs: found.append(kwargs['query_pos']), with_kwargs=True)
        run(model, features())
        if kind:
            table = model.positional_encoding.encoder_pos_encodings.pos_embed.unflatten(1, (25, 42))
    assert not found[1].any()
    for index, grid in enumerate(((2, 3), (2, 2))):
        resized = torch.nn.functional.interpolate(table.permute(0, 3, 1, 2), grid, mode='bicubic')
        own = found[0][index].unflatten(0, (2, 3))[:grid[0], :grid[1]]
        torch.testing.assert_close(own, resized[0].permute(1, 2, 0))


@pytest.mark.parametrize('name, options, message', [
    (SPARSE, dict(attn=dict(rel_pos_encoding=IRPE)), 'deformable attention has no logits of pairs'),
    (SPARSE, dict(skip_padding=True), 'deformable attention samples whole maps'),
    (DENSE, dict(skip_padding=True), 'convolutions after the encoder read padded tokens'),
    (DENSE, dict(encoder_pos='cosine'), "encoder.encoder_pos='cosine' must be"),
    (DENSE, dict(pos_encoding=dict(type='mmposenc.PEG', padding='none')), 'changes the grid')])
def test_contradictions_are_named(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(config(name, **options))
