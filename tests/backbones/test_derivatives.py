"""Second derivatives are right or an error, whatever the size; torch.func works at every size."""
import examples
import pytest
import torch
from helpers.tiny_backbones import BUILD, randomize
from torch.func import functional_call, grad, vmap

from mmposenc.attention import attend
from mmposenc.functional.pooling.adaptive import context_pool

hvp = torch.autograd.functional.hvp


@pytest.mark.parametrize('name', ['IRPE product k', 'DynamicPositionBias'])
def test_second_derivatives_of_attention(name):
    """Also where the incoming gradient is constant, and of the tables alone."""
    grid = (5, 6)
    encoding = randomize(examples.relative(name, grid)).double()
    q, k, v, direction = torch.randn(4, 1, 2, 30, 4, dtype=torch.float64)

    def energy(q, how):
        return attend(q, k, v, encoding, grid, implementation=how)[0].pow(3).sum()

    def total(q, how):
        return attend(q, k, v, encoding, grid, implementation=how)[0].sum() + q.pow(3).sum()

    for function in (energy, total):
        expected = hvp(lambda q, f=function: f(q, 'reference'), q, direction)[1]
        assert (expected - 6 * q * direction).abs().max() > 1e-3
        with pytest.raises(RuntimeError, match="no second derivatives.*implementation='reference'"):
            hvp(lambda q, f=function: f(q, 'chunked'), q, direction)
    first = torch.autograd.grad(total(q.requires_grad_(), 'chunked'), q, create_graph=True)[0]
    torch.testing.assert_close(first, torch.autograd.grad(total(q, 'reference'), q)[0])


def test_second_derivatives_of_context_pooling():
    """The reference's are right: functional/pooling/test_adaptive.py."""
    x, logits, sigma = torch.randn(1, 30, 4), *torch.randn(2, 1, 30)
    with pytest.raises(RuntimeError, match=r"no second derivatives.*implementation='reference'"):
        hvp(lambda logits: context_pool(x, logits, sigma.exp(), (5, 6),
                                        implementation='exact').sum(), logits, logits)


@pytest.mark.parametrize('kind, options', [
    ('vit', dict(rel_pos_encoding=dict(type='LogSpacedCPB'))),
    ('vit', dict(rel_pos_encoding=dict(type='IRPE'), pos_encoding=dict(type='ContextPool'))),
    ('pvt', dict(pos_encoding=dict(type='PEG'))), ('swin', dict())])
def test_torch_func_at_a_large_size(kind, options):
    model = randomize(BUILD[kind](img_size=192, **options), 0.1).eval().double()
    parameters = dict(model.named_parameters())
    torch.manual_seed(0)
    x = torch.randn(2, 3, 192, 192, dtype=torch.float64)

    def loss(parameters, x):
        return sum(out.square().mean() for out in functional_call(model, parameters, (x,)))

    loss(parameters, x).backward()
    found = grad(loss)(parameters, x)
    each = vmap(grad(lambda p, image: loss(p, image[None])), in_dims=(None, 0))(parameters, x)
    for name, parameter in parameters.items():
        torch.testing.assert_close(found[name], parameter.grad, msg=lambda t, n=name: f'{n}: {t}')
        torch.testing.assert_close(each[name].mean(0), parameter.grad)
