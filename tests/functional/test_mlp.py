"""The chunked perceptron equals the plain one."""
import pytest
import torch
import torch.nn.functional as F

from mmposenc.functional import mlp as module
from mmposenc.functional.mlp import mlp


def make(rows, dims=5, hidden=7, out=4):
    torch.manual_seed(0)
    shapes = [rows + (dims,), (hidden, dims), (hidden,), (out, hidden), (out,)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize('activation', module.ACTIVATIONS)
@pytest.mark.parametrize('rows', [(1,), (2, 3), (10,), (3, 8)])
def test_forms_agree_in_value_and_gradient(rows, activation, monkeypatch):
    monkeypatch.setattr(module, 'CHUNK_ROWS', 4)  # several chunks, the last one partial
    args = make(rows)
    activate = getattr(F, activation)
    expected = F.linear(activate(F.linear(args[0], args[1], args[2])), args[3], args[4])
    stored = mlp(*args, form='stored', activation=activation)
    torch.testing.assert_close(stored, expected)
    weight = torch.randn_like(expected)
    grads = torch.autograd.grad((expected * weight).sum(), args)
    for form in ('chunked', 'kept') if activation == 'relu' else ('chunked',):
        chunked = mlp(*args, form=form, activation=activation)
        torch.testing.assert_close(chunked, expected)
        for own, plain in zip(torch.autograd.grad((chunked * weight).sum(), args), grads,
                              strict=True):
            torch.testing.assert_close(own, plain)


FORMS = [('chunked', 'gelu'), ('chunked', 'relu'), ('kept', 'relu')]


@pytest.mark.parametrize('form, activation', FORMS)
def test_gradcheck(form, activation, monkeypatch):
    monkeypatch.setattr(module, 'CHUNK_ROWS', 3)
    assert torch.autograd.gradcheck(
        lambda *a: mlp(*a, form=form, activation=activation), make((5,)))


@pytest.mark.parametrize('form, activation', FORMS)
@pytest.mark.parametrize('frozen', range(5))
def test_frozen_arguments_get_no_gradient(frozen, form, activation):
    args = make((6,))
    args[frozen].requires_grad_(False)
    mlp(*args, form=form, activation=activation).square().sum().backward()
    assert [arg.grad is None for arg in args] == [index == frozen for index in range(5)]


def test_auto_stores_under_autocast_and_chunks_what_is_large(monkeypatch):
    calls = []
    monkeypatch.setattr(module._ChunkedMLP, 'apply', lambda *a: calls.append(1) or a[0])
    monkeypatch.setattr(module, 'MIN_HIDDEN_BYTES', 0)
    args = [arg.detach().float() for arg in make((6,), out=5)]
    mlp(*args)
    assert calls == [1]
    with torch.autocast('cpu', torch.bfloat16):
        assert mlp(*args).dtype == torch.bfloat16
    assert calls == [1]


def test_unknown_form_is_named():
    with pytest.raises(ValueError, match="form='fast' must be"):
        mlp(*make((2,)), form='fast')
    with pytest.raises(ValueError, match="activation='relu', 'kept'"):
        mlp(*make((2,)), form='kept')


def test_unknown_activation_is_named():
    with pytest.raises(ValueError, match="activation='elu' must be one of"):
        mlp(*make((2,)), activation='elu')
