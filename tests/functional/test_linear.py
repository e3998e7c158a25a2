"""Linear layers by oneDNN equal PyTorch's."""
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from mmposenc.functional import linear as module
from mmposenc.functional.linear import linear

SIZES = [((3, 5), 4), ((2, 7, 8), 3), ((1, 1, 6), 6), ((0, 4), 2)]


@pytest.fixture
def onednn(monkeypatch):
    """Every float32 product by oneDNN, on any processor that has it; counts the calls."""
    if not hasattr(torch.ops.mkldnn, '_linear_pointwise'):
        pytest.skip('this PyTorch was built without oneDNN')
    calls = []
    own = module.onednn_product
    monkeypatch.setattr(module, 'onednn_product', lambda *args: calls.append(args) or own(*args))
    monkeypatch.setattr(module, 'onednn_is_faster', lambda: True)
    monkeypatch.setattr(module, 'onednn_halves_time', lambda: True)
    monkeypatch.setattr(module, 'MIN_PRODUCT', 1)
    return calls


def make(shape, out, bias=True):
    torch.manual_seed(0)
    sizes = [shape, (out, shape[-1])] + ([(out,)] if bias else [])
    return [torch.randn(size, requires_grad=True) for size in sizes]


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('shape, out', SIZES)
def test_values_and_gradients_are_those_of_float64(shape, out, bias, onednn):
    """Whichever argument is frozen or no contiguous tensor."""
    args = make(shape, out, bias)
    exact = [arg.detach().double().requires_grad_() for arg in args]
    expected = F.linear(*exact)
    result = linear(*args)
    torch.testing.assert_close(result.double(), expected, atol=1e-5, rtol=1e-5)
    grad = torch.randn_like(result)
    right = torch.autograd.grad(expected, exact, grad.double())
    found = torch.autograd.grad(result, args, grad)
    torch.testing.assert_close(found, right, atol=1e-5, rtol=1e-5, check_dtype=False)
    # Forward, and by the input and the weight; PyTorch has the empty ones.
    assert len(onednn) == (3 if args[0].numel() else 0)
    for frozen in range(len(args)):
        views = [torch.stack((arg.detach(), arg.detach()), -1)[..., 0].requires_grad_(
            index != frozen) for index, arg in enumerate(args)]
        linear(*views).backward(grad)
        for index, (view, value) in enumerate(zip(views, right, strict=True)):
            assert (view.grad is None) == (index == frozen)
            if index != frozen:
                torch.testing.assert_close(view.grad.double(), value, atol=1e-5, rtol=1e-5)


def test_second_gradients_are_those_of_pytorch(onednn):
    def second(function):
        args = make((3, 5), 4)
        grads = torch.autograd.grad(function(*args).pow(3).sum(), args, create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in grads), args)
    torch.testing.assert_close(second(linear), second(F.linear), atol=1e-3, rtol=1e-4)


def test_torch_func_goes_through(onednn):
    x, weight, bias = (arg.detach() for arg in make((3, 5), 4))
    for function in (linear, F.linear):
        gradient = torch.func.grad(lambda w, f=function: f(x, w, bias).square().sum())(weight)
        mapped = torch.vmap(lambda rows, f=function: f(rows, weight, bias))(torch.stack([x, 2 * x]))
        if function is linear:
            own = gradient, mapped
    torch.testing.assert_close(own, (gradient, mapped))


@pytest.mark.parametrize('dtype', [torch.float64, torch.bfloat16])
def test_other_dtypes_are_pytorchs(dtype, onednn):
    x, weight = torch.randn(4, 6).to(dtype), torch.randn(3, 6).to(dtype)
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight), atol=0, rtol=0)
    assert not onednn


@pytest.mark.parametrize('text, found', [
    ('flags\t: avx512f avx512_bf16\n', True), ('flags\t: avx512f amx_bf16 amx_tile\n', True),
    ('Features\t: fp asimd bf16\n', True), ('flags\t: avx512f avx512bw\n', False), ('', False)])
def test_instructions_for_bfloat16_are_those_that_linux_lists(text, found, monkeypatch):
    monkeypatch.setattr(module, '_cpu_info', lambda: text)
    assert module.has_bfloat16_units() is found


@pytest.fixture
def bfloat16(onednn):
    """The calls of oneDNN on a processor that computes bfloat16 by it."""
    if not module.onednn_has_bfloat16():
        pytest.skip('oneDNN has no bfloat16 on this processor')
    return onednn


@pytest.mark.parametrize('cast', [False, True])
@pytest.mark.parametrize('shape, out', SIZES)
def test_bfloat16_with_a_bias_is_pytorchs_to_rounding(shape, out, cast, bfloat16):
    """By its own dtype, or by autocast, where gradients have the dtype of the weights."""
    found = []
    for function in (linear, F.linear):
        args = [arg if cast else arg.bfloat16() for arg in make(shape, out)]
        with torch.autocast('cpu', torch.bfloat16, enabled=cast):
            result = function(*args)
        grad = torch.linspace(-1, 1, result.numel()).view_as(result).to(result.dtype)
        found.append([result, *torch.autograd.grad(result, args, grad)])
    torch.testing.assert_close(*found, atol=0.02, rtol=0.02)
    assert len(bfloat16) == (1 if args[0].numel() else 0)


def test_autocast_compile_and_the_switch_of_pytorch_are_kept(onednn):
    x, weight = torch.randn(4, 6), torch.randn(3, 6)
    with torch.autocast('cpu', torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        linear(x, weight)
    assert linear(x.to('meta'), weight.to('meta')).shape == (4, 3)
    assert not onednn
    linear(x, weight)
    assert len(onednn) == 1
    assert torch.compile(linear, backend='eager', fullgraph=True)(x, weight).shape == (4, 3)
    assert len(onednn) == 1


@pytest.mark.parametrize('vendor, family, capability, faster, halves', [
    ('AuthenticAMD', 26, 'AVX512', True, True), ('AuthenticAMD', 25, 'AVX512', True, False),
    ('GenuineIntel', 26, 'AVX512', False, False), ('AuthenticAMD', 26, 'AVX2', False, False)])
def test_where_mkl_leaves_avx512_unused(vendor, family, capability, faster, halves, monkeypatch):
    """From Zen 5 on oneDNN is so much faster that small products gain too."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        pytest.skip('this PyTorch lacks one of the two libraries')
    monkeypatch.setattr(torch.backends.cpu, 'get_cpu_capability', lambda: capability)
    monkeypatch.setattr(module.Path, 'read_text', lambda path, **kwargs: (
        f'vendor_id\t: {vendor}\ncpu family\t: {family}\n'))
    monkeypatch.setattr(module, 'onednn_is_faster', module.onednn_is_faster.__wrapped__)
    assert module.onednn_is_faster() is faster
    assert module.onednn_halves_time.__wrapped__() is halves


def test_the_gradient_of_a_weight_by_either_library(onednn, monkeypatch):
    for halves, shapes in itertools.product((True, False), ((3, 4), (4, 3))):
        monkeypatch.setattr(module, 'onednn_halves_time', lambda halves=halves: halves)
        a, b = (torch.randn(5, side) for side in shapes)
        torch.testing.assert_close(module.transposed_product(a, b), a.t() @ b)
    assert len(onednn) == 2


def test_attention_by_onednn_equals_the_definition(onednn, monkeypatch):
    """Chunks with every product by oneDNN, with a term of each kind."""
    import examples
    from helpers.relative_checks import chunks_of, random_inputs, results
    for name in ('IRPE product qkv', 'RelativePositionBias', 'SASARPE', 'QueryRelative1D'):
        encoding = examples.relative(name, (4, 6), head_dims=8, num_prefix_tokens=1)
        inputs = random_inputs(encoding, (4, 6), None, dtype=torch.float32)
        expected = results(encoding, inputs, (4, 6), None, implementation='reference')
        before = len(onednn)
        for options in (dict(elements=200, long=True, keep=False),
                        dict(elements=10 ** 6, long=False, keep=True)):
            with chunks_of(**options):
                found = results(encoding, inputs, (4, 6), None, implementation='chunked')
            torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-3)
        assert len(onednn) > before


def test_operations_are_counted(onednn):
    x, weight, bias = make((2, 7, 8), 3)
    with FlopCounterMode(display=False) as mode:
        linear(x, weight, bias).sum().backward()
    assert mode.get_total_flops() == 3 * 2 * 14 * 8 * 3 and not onednn
