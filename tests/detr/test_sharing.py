"""One relative encoding for all layers of DETR's encoder. (Its values, gradients and errors:
tests/backbones/test_sharing.py; packed and recomputed: test_skip_padding.py.)"""
import copy

import pytest
import torch
from helpers.tiny_detr import IRPE, build, detr
from mmengine.optim import DefaultOptimWrapperConstructor

from mmposenc.engine.training.compiling import compile_regions

TABLE = 'encoder.rel_pos_encoding.table_k'


def model_of(sharing):
    return build(detr(encoder=dict(rel_pos_sharing=sharing), attn=dict(rel_pos_encoding=IRPE)))


@pytest.mark.parametrize('sharing', ['stage', 'all'])
def test_what_is_shared_is_listed_saved_and_optimized_once(sharing):
    model = model_of(sharing)
    assert [key for key in model.state_dict() if 'rel_pos' in key] == [TABLE]
    assert [key for key, _ in model.named_parameters(remove_duplicate=False)
            if 'rel_pos' in key] == [TABLE]
    groups = DefaultOptimWrapperConstructor(
        dict(optimizer=dict(type='SGD', lr=0.1)), dict(custom_keys={'backbone': dict(lr_mult=0.1)})
    )(model).optimizer.param_groups
    found = [id(p) for group in groups for p in group['params']]
    assert sorted(found) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    other = copy.deepcopy(model)
    for layer in other.encoder.layers:
        assert layer.self_attn.rel_pos_encoding is other.encoder.rel_pos_encoding


def test_the_encoder_compiles_into_one_graph():
    torch._dynamo.reset()
    encoder = model_of('all').encoder
    x = torch.randn(1, 12, 16)
    grads = []
    for function in (torch.compile(encoder, fullgraph=True, backend='eager'), encoder):
        encoder.zero_grad()
        function(x, spatial_shapes=(3, 4)).square().mean().backward()
        grads.append(encoder.rel_pos_encoding.table_k.grad.clone())
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-6)
    assert compile_regions(model_of('all'), backend='eager') == {
        'DetrDecoderLayer': 1, 'DetrEncoderLayer': 2, 'PVTBlock': 4}
