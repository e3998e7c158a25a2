"""Pixel decoders: mmdet's without encodings, and what encodings do in them."""
import copy

import pytest
import torch
from helpers.tiny_detr import (
    DENSE,
    IRPE,
    LEARNED,
    PEG,
    PIXEL_METAS,
    SPARSE,
    assert_gradients,
    build,
    gradients,
    pixel_decoder,
    pixel_maps,
)
from mmengine.registry import MODELS, init_default_scope

from mmposenc.detr import DetrEncoder


def run(model: torch.nn.Module, last: float = 0.0) -> list[torch.Tensor]:
    """All outputs for maps of two images, with a number in the padding of the last map. The pixel
    decoder of MaskFormer is told the images' sizes."""
    maps, dense = pixel_maps(), type(model).__name__ == DENSE
    maps[-1][1, :, :, 2:] = last
    mask, memory = model(maps, PIXEL_METAS) if dense else model(maps)
    return [mask, *([memory] if dense else memory)]


@pytest.mark.parametrize('name', [DENSE, SPARSE])
def test_without_encodings_it_is_mmdets(name: str) -> None:
    """Outputs and gradients with the same weights, on a batch of which one image is padded."""
    theirs, ours = build(pixel_decoder(name, '')), build(pixel_decoder(name), seed=1)
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
    model = MODELS.build(copy.deepcopy(pixel_decoder(name, **options)))
    model.init_weights()
    for key, module in model.named_modules():
        if type(module).__name__ == 'PEG':  # normal of variance 2 / 9; Xavier's is below 0.17
            assert 0.3 < module.proj[0].weight.std() < 0.65
        if key.endswith('rel_pos_encoding'):
            assert not module.table_k.any()
    model = build(pixel_decoder(name, **options)).train()
    sum(out.square().sum() for out in run(model)).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), key
        # Biases of keys move all logits of a query alike.
        assert parameter.grad.any() or 'in_proj_bias' in key, key
    assert not model.encoder._forward_pre_hooks


def test_padding_changes_nothing_in_the_encoder_of_maskformer() -> None:
    """What lies in the padded cells of the last map does not reach the others."""
    model = build(pixel_decoder(DENSE, **ALL)).eval()
    before, after = run(model)[1], run(model, 50.0)[1]
    torch.testing.assert_close(after[1, :, :, :2], before[1, :, :, :2], atol=2e-5, rtol=1e-4)
    assert (after[1, :, :, 2] - before[1, :, :, 2]).abs().max() > 0.1
    torch.testing.assert_close(after[0], before[0])
