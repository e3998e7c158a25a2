"""The chunked perceptron equals the plain one."""
import pytest
import torch
import torch.nn.functional as F

from mmposenc.attention.fast.dropout import DropoutFactors
from mmposenc.backbones import mlp as module
from mmposenc.backbones.mlp import mlp


def make(rows, dims=5, hidden=7, out=4, gated=False):
    torch.manual_seed(0)
    first = hidden * (2 if gated else 1)
    shapes = [rows + (dims,), (first, dims), (first,), (out, hidden), (out,)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


PLAIN = {'gelu': F.gelu, 'relu': F.relu, 'gelu_tanh': lambda x: F.gelu(x, approximate='tanh'),
         'quick_gelu': lambda x: x / (1 + (-1.702 * x).exp()),
         'swiglu': lambda x: F.silu(x[..., :7]) * x[..., 7:]}


@pytest.mark.parametrize('activation', module.ACTIVATIONS)
@pytest.mark.parametrize('rows', [(1,), (2, 3), (3, 8)])
def test_both_ways_are_the_formula(rows, activation, monkeypatch):
    monkeypatch.setattr(module, 'CHUNK_ROWS', 4)  # several chunks, the last one partial
    args = make(rows, gated=activation == 'swiglu')
    expected = F.linear(PLAIN[activation](F.linear(*args[:3])), *args[3:])
    weight = torch.randn_like(expected)
    grads = torch.autograd.grad((expected * weight).sum(), args)
    for way in ('stored', 'chunked'):
        out = mlp(*args, implementation=way, activation=activation)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(torch.autograd.grad((out * weight).sum(), args), grads)


@pytest.mark.parametrize('activation, dropout', [
    *((activation, 0.0) for activation in module.ACTIVATIONS), ('relu', 0.5)])
def test_derivatives_of_both_orders_and_of_some_arguments(activation, dropout, monkeypatch):
    monkeypatch.setattr(module, 'CHUNK_ROWS', 4)
    args = make((3, 3), gated=activation == 'swiglu')

    def run(*args):
        torch.manual_seed(1)
        return mlp(*args, implementation='chunked', activation=activation, dropout_p=dropout)

    assert torch.autograd.gradcheck(run, args) and torch.autograd.gradgradcheck(run, args)
    for frozen in range(5):
        some = [arg.detach().requires_grad_(index != frozen) for index, arg in enumerate(args)]
        run(*some).square().sum().backward()
        assert [arg.grad is None for arg in some] == [index == frozen for index in range(5)]


def test_second_derivatives_where_weights_are_computed_from_the_input():
    def run(x, how):
        weight = x.t() @ x
        return mlp(x, weight, x[0], weight.sin(), x[1], implementation=how, activation='gelu')

    x = torch.randn(6, 5, dtype=torch.float64)
    found, expected = (torch.autograd.functional.hvp(
        lambda x, how=how: run(x, how).square().sum(), x, x.cos())[1]
        for how in ('chunked', 'stored'))
    torch.testing.assert_close(found, expected)


def test_auto_chunks_what_is_large_under_autocast_too(monkeypatch):
    calls = []
    monkeypatch.setattr(module._ChunkedMLP, 'apply', lambda *a: calls.append(a[0].dtype) or a[0])
    monkeypatch.setattr(module, 'MIN_HIDDEN_BYTES', 0)
    args = [arg.detach().float() for arg in make((6,), out=5)]
    mlp(*args)
    with torch.autocast('cpu', torch.bfloat16):
        mlp(*args)
        mlp(*[arg.double() for arg in args])  # which autocast leaves alone
    assert calls == [torch.float32, torch.bfloat16, torch.float64]
    monkeypatch.setattr(module, 'MIN_HIDDEN_BYTES', 2 ** 40)
    mlp(*args)
    assert len(calls) == 3


@pytest.mark.parametrize('autocast', [True, False])
def test_gradients_of_many_chunks_are_summed_up_in_float32(autocast, monkeypatch):
    """In bfloat16 a sum of 512 equal parts would stop growing at 256."""
    monkeypatch.setattr(module, 'CHUNK_ROWS', 1)
    dtype = torch.float32 if autocast else torch.bfloat16
    x, weight1 = torch.ones(512, 1, dtype=dtype), torch.ones(1, 1, dtype=dtype)
    args = [x, weight1, weight1[0], weight1, weight1[0]]
    args = [arg.clone().requires_grad_() for arg in args]
    with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
        mlp(*args, implementation='chunked', activation='relu').sum().backward()
    assert [arg.grad.item() for arg in args[1:]] == [512, 512, 1024, 512]
    assert args[1].grad.dtype == dtype


def test_unknown_implementation_is_named():
    with pytest.raises(ValueError, match="implementation='fast' must be"):
        mlp(*make((2,)), implementation='fast')
    with pytest.raises(ValueError, match="activation='elu' must be one of"):
        mlp(*make((2,)), activation='elu')


def test_dropout_equals_the_formula_under_the_same_mask(monkeypatch):
    """However many chunks; the masks are those that were drawn. (Gradients: above.)"""
    monkeypatch.setattr(module, 'CHUNK_ROWS', 4)
    args, drawn = make((3, 5)), []
    original = DropoutFactors.draw
    monkeypatch.setattr(DropoutFactors, 'draw', lambda self, out: (
        drawn.append(original(self, out).clone()) or drawn[-1].clone()))
    out = mlp(*args, implementation='chunked', activation='relu', dropout_p=0.4)
    kept = torch.cat(drawn).view(3, 5, -1)
    x, weight1, bias1, weight2, bias2 = args
    hidden = (x @ weight1.T + bias1).relu() * kept * DropoutFactors(0.4, x.device, 0).scale
    expected = hidden @ weight2.T + bias2
    torch.testing.assert_close(out, expected)
    assert 0.3 < float(kept.mean()) < 0.9
    with pytest.raises(ValueError, match="dropout_p=0.4 with activation='gelu'"):
        mlp(*args, dropout_p=0.4)
