"""One relative encoding for all layers of DETR's encoder."""
import copy

import pytest
import torch
from mmengine.optim import DefaultOptimWrapperConstructor
from tinydetr import IRPE, build, detr

TABLE = 'encoder.rel_pos_encoding.table_k'


def model_of(sharing, encoding=IRPE, **encoder):
    return build(detr(encoder=dict(rel_pos_sharing=sharing, **encoder),
                      attn=dict(rel_pos_encoding=encoding)))


def test_values_and_gradients_are_those_of_copies():
    shared, copies = (model_of(sharing, dict(IRPE, rpe_on='qkv')).encoder.double()
                      for sharing in ('all', 'layer'))
    own = {key: value for key, value in shared.state_dict().items()
           if 'rel_pos_encoding' not in key}
    copies.load_state_dict(own, strict=False)
    layers = [layer.self_attn.rel_pos_encoding for layer in copies.layers]
    for encoding in layers:
        encoding.load_state_dict(shared.rel_pos_encoding.state_dict())
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    mask = torch.zeros(2, 3, 4, dtype=torch.bool)
    mask[1, :, 3:] = True
    out, expected = (encoder(x, None, mask.flatten(1), spatial_shapes=(3, 4))
                     for encoder in (shared, copies))
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    out.square().sum().backward()
    expected.square().sum().backward()
    for key, parameter in shared.rel_pos_encoding.named_parameters():
        grads = [encoding.get_parameter(key).grad for encoding in layers]
        torch.testing.assert_close(parameter.grad, sum(grads), rtol=1e-10, atol=1e-10)


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


def test_initialising_the_detector_leaves_the_tables_at_zero():
    model = model_of('all')
    assert model.encoder.rel_pos_encoding.table_k.any()  # moved off zero for the tests
    model.init_weights()
    assert not model.encoder.rel_pos_encoding.table_k.any()


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


def test_wrong_options():
    with pytest.raises(ValueError, match=r"rel_pos_sharing='both' must be one of \('layer'"):
        model_of('both')
    with pytest.raises(ValueError, match='has no window_size; RelativePositionBias requires it'):
        model_of('all', dict(type='mmposenc.RelativePositionBias'))
