"""iRPE against the official release (golden files); its formula: test_formulas.py."""
import pytest
import torch
from helpers.golden_files import assert_released, golden_names, load_golden

from mmposenc.attention import MultiheadAttention
from mmposenc.checkpoint import convert

METHODS = {'euc': 'euclidean', 'quant': 'quantization', 'cross': 'cross', 'product': 'product'}


def converted(params):
    """Weights of an attention of the release, under the names of ours."""
    attention = 'blocks.0.attn.'
    state = convert({f'{attention}{name}': value for name, value in params.items()}, 'irpe-deit')
    return {name.removeprefix(f'backbone.{attention}'): value for name, value in state.items()}


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32], ids=['float64', 'float32'])
@pytest.mark.parametrize('stem', golden_names('irpe_attention_*'))
def test_golden(stem, dtype):
    """The attention that its name describes."""
    params, data = load_golden(stem)
    hw = int(data['H']), int(data['W'])
    _, _, _, method, mode, rpe_on, heads, skip, *_ = stem.split('_')
    module = MultiheadAttention(params['qkv.weight'].shape[1], 3, num_prefix_tokens=int(skip[4:]),
                                rel_pos_encoding=dict(
        type='mmposenc.IRPE', method=METHODS[method], rpe_on=rpe_on, ratio=float(data['ratio']),
        mode='bias' if mode == 'bias' else 'contextual', shared_heads=heads == 'shared'))
    module.load_state_dict(converted(params))
    module.to(dtype)
    x = data['x'].to(dtype).requires_grad_()
    y = module(x, hw)
    assert_released(y, data['y'])
    y.square().sum().backward()
    assert_released(x.grad, data['grad_x'])
    grads = {name[5:]: value for name, value in data.items() if name.startswith('grad.')}
    ours = dict(module.named_parameters())
    for name, value in converted(grads).items():
        assert_released(ours[name].grad, value)
