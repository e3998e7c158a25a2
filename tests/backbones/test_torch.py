"""What torch promises of modules: second derivatives are right or an error, torch.func works at
every size; models that are built on the meta device, or were in half precision, have their fixed
numbers."""
import copy

import examples
import pytest
import torch
from helpers.tiny_backbones import BUILD, images, randomize
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmposenc.attention import attend
from mmposenc.functional.pooling.adaptive import context_pool

hvp = torch.autograd.functional.hvp


@pytest.mark.parametrize('name', ['IRPE product k', 'DynamicPositionBias', 'ALiBi2D'])
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
        with sdpa_kernel(SDPBackend.MATH):
            expected = hvp(lambda q, f=function: f(q, 'reference'), q, direction)[1]
        assert (expected - 6 * q * direction).abs().max() > 1e-3
        with pytest.raises(RuntimeError, match="no second derivatives.*implementation='reference'"):
            hvp(lambda q, f=function: f(q, 'chunked'), q, direction)
    first = torch.autograd.grad(total(q.requires_grad_(), 'chunked'), q, create_graph=True)[0]
    torch.testing.assert_close(first, torch.autograd.grad(total(q, 'reference'), q)[0])


def test_second_derivatives_of_context_pooling():
    """The reference's are right: functional/test_pooling.py."""
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


def make(name=None, **options):
    encoding = name and dict(examples.small(name), **(
        dict(layer_slopes=(1.5, 0.5)) if 'LookHere' in name else {}))
    return BUILD['vit'](img_size=(32, 48), rel_pos_encoding=encoding, drop_path_rate=0.3, **options)


@pytest.mark.parametrize('name', [None, *examples.RELATIVE])
@pytest.mark.parametrize('way', ['to_empty', 'assign'])
def test_weights_are_all_that_a_model_needs(name, way):
    model = randomize(make(name)).eval()
    with torch.device('meta'):
        other = make(name).eval()
    if way == 'assign':
        other.load_state_dict(model.state_dict(), assign=True)
        other.to('cpu')
    else:
        other.to_empty(device='cpu')
        for buffer in other.buffers():
            buffer.fill_(7)  # what memory of a new process may hold
        other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(images()), model(images()), atol=0, rtol=0)
    torch.testing.assert_close(dict(other.named_buffers()), dict(model.named_buffers()))


@pytest.mark.parametrize('name', ['ALiBi2D', 'LookHere 90', 'RotaryEmbedding golden',
                                  'KERPLE log'])
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision_leaves_no_trace(name, dtype):
    model = BUILD['vit'](embed_dims=48, num_heads=12, rel_pos_encoding=examples.small(name),
                         drop_path_rate=0.3)
    back = copy.deepcopy(model).to(dtype).float()
    back.load_state_dict(model.state_dict())
    torch.testing.assert_close([*back.buffers()], [*model.buffers()], atol=0, rtol=0)
    doubled = copy.deepcopy(model).double()
    slopes = dict(doubled.named_buffers()).get('blocks.0.attn.rel_pos_encoding.slopes')
    if name == 'ALiBi2D':
        assert slopes.tolist() == doubled.blocks[0].attn.rel_pos_encoding.constants()['slopes']
