"""The examples that other tests run over, and encodings that are added to a trained model: at first
they change nothing, and they train from there."""
import copy
from functools import partial

import examples
import pytest
import torch
from helpers.relative_checks import attend, random_inputs
from helpers.tiny_backbones import randomize
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from mmposenc.attention import MultiheadAttention
from mmposenc.encodings import ENCODINGS, IRPE, TokenEncoding, build_encoding


def shapes(module):
    return {name: value.shape for name, value in module.state_dict().items()}


@pytest.mark.parametrize('name', ENCODINGS)
def test_every_encoding_has_an_example(name):
    found = {ENCODINGS[each['type']] for each in (examples.RELATIVE | examples.TOKEN).values()}
    assert ENCODINGS[name] in found, f'{name} needs a row in RELATIVE or TOKEN of examples.py'


@pytest.mark.parametrize('name', examples.TOKEN_OPTIONS)
def test_token_encodings_change_tokens(name):
    """Of the grid, not of the prefix; gradients are right, with padding, and none is missing. A
    batch may be empty, or on the meta device."""
    encoding = examples.token(name, (2, 3)).double()
    randomize(encoding, 0.5)
    before = shapes(encoding)
    encoding.eval()(torch.randn(1, 8, 8, dtype=torch.double), (2, 4))
    assert shapes(encoding) == before  # nothing depends on the size of the last input
    for images, device in ((0, 'cpu'), (2, 'meta')):
        x = torch.zeros(images, 8, 8, dtype=torch.double, device=device)
        assert copy.deepcopy(encoding).to(device)(x, (2, 4)).shape == x.shape
    x = torch.randn(2, 7, 8, dtype=torch.double, requires_grad=True)
    mask = torch.zeros(2, 2, 3, dtype=torch.bool)
    mask[1, :, 2] = True
    out = encoding(x, (2, 3), num_prefix_tokens=1, padding_mask=mask)
    assert torch.equal(out[:, :1], x[:, :1]) and not torch.allclose(out[:, 1:], x[:, 1:])
    if 'random_sparse' not in name:
        near = copy.deepcopy(encoding).bfloat16()(
            x.detach().bfloat16(), (2, 3), num_prefix_tokens=1, padding_mask=mask)
        assert near.dtype == torch.bfloat16 and near.isfinite().all()
        assert (near - out).abs().mean() < 0.02 * out.abs().mean()
    # A constant added to all logits of ContextPool's weights changes no mean, nor does a bias in
    # front of BatchNorm what comes behind it.
    if 'random_sparse' not in name:
        leaves = [x, *(p for p in encoding.parameters() if p.requires_grad)]
        assert torch.autograd.gradcheck(
            lambda *_: encoding(x, (2, 3), num_prefix_tokens=1, padding_mask=mask), leaves,
            fast_mode=True)
    encoding.train()(x, (2, 3), num_prefix_tokens=1, padding_mask=mask).cos().sum().backward()
    for key, p in encoding.named_parameters():
        free = p.shape == (1,) or name == 'PEG normed' and key == 'proj.0.bias'
        assert free or p.grad is not None and p.grad.abs().max() > 0, key


@pytest.mark.parametrize('name', [*examples.RELATIVE, *examples.TOKEN])
def test_from_junk_parameters_are_reset_to_what_a_new_encoding_has(name):
    """The same numbers where they are constant, else numbers that are spread alike."""
    drawn = {}
    for number in range(40):
        encoding = (examples.relative(name, (3, 4), num_prefix_tokens=1)
                    if name in examples.RELATIVE else examples.token(name, (3, 4)))
        if number % 2:
            for parameter in encoding.parameters():
                torch.nn.init.constant_(parameter, 5.0)
            encoding.reset_parameters()
        for key, parameter in encoding.named_parameters():
            drawn.setdefault(key, ([], []))[number % 2].append(parameter.detach().flatten())
    for key, kinds in drawn.items():
        new, reset = (torch.cat(numbers).sort().values for numbers in kinds)
        apart = (new - reset).abs().mean() / (new.std() + 1e-6)
        assert apart < 0.2 + 3 / len(new) ** 0.5, f'{name}: reset_parameters does not reset {key}'


@pytest.mark.parametrize('name', examples.TOKEN)
def test_wrong_number_of_tokens_is_named(name):
    with pytest.raises(ValueError, match=r'x has 5 tokens, but hw_shape=\(2, 2\)'):
        examples.token(name, (2, 2))(torch.zeros(1, 5, 8), (2, 2))


@pytest.mark.parametrize('grids, prefix', [(((2, 3), None), 1), (((4, 4), (2, 2)), 0)])
@pytest.mark.parametrize('name', examples.RELATIVE)
def test_relative_encodings_change_attention(name, grids, prefix):
    """And gradients of inputs and parameters are right and none of them is left out."""
    encoding = examples.relative(name, grids[0], num_prefix_tokens=prefix)
    before = shapes(encoding)
    q, k, v = random_inputs(encoding, *grids)
    out, _ = attend(q, k, v, encoding, *grids)
    assert shapes(encoding) == before
    assert not torch.allclose(out, attend(q, k, v)[0])
    assert attend(q[:0], k[:0], v[:0], encoding, *grids)[0].shape == out[:0].shape
    half = [x.bfloat16() for x in (q, k, v)]
    # Vectors in a wider dtype take that of the queries.
    for each in (copy.deepcopy(encoding).bfloat16(), encoding):
        near, _ = attend(*half, each, *grids)
        assert near.dtype == torch.bfloat16
        assert (near - out).abs().mean() < 0.1 * out.abs().mean()
    inputs = [x.requires_grad_() for x in random_inputs(encoding, *grids, batch=1)]

    def run(*_):
        return attend(*inputs, encoding, *grids, implementation='reference')[0]

    assert torch.autograd.gradcheck(run, (*inputs, *encoding.parameters()), fast_mode=True)
    run().square().sum().backward()
    for key, parameter in encoding.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize('name', examples.RELATIVE)
def test_selective_checkpointing_may_store_products(name):
    encoding = examples.relative(name, (3, 4), num_prefix_tokens=1)
    inputs = [x.requires_grad_() for x in random_inputs(encoding, (3, 4), None)]
    policy = partial(create_selective_checkpoint_contexts, [
        torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default])

    def run(*qkv):
        return attend(*qkv, encoding, (3, 4), implementation='chunked')[0]

    stored = checkpoint(run, *inputs, use_reentrant=False, context_fn=policy)
    torch.testing.assert_close(*(torch.autograd.grad(
        out.square().sum(), inputs, materialize_grads=True) for out in (stored, run(*inputs))))


@pytest.mark.parametrize('name', examples.RELATIVE)
def test_second_derivatives_are_those_of_differences(name):
    """The second derivatives of weights and tokens times a direction."""
    encoding = examples.relative(name, (2, 3), num_prefix_tokens=1).double()
    inputs = random_inputs(encoding, (2, 3), None, batch=1)
    variables = [*(x.requires_grad_() for x in inputs), *encoding.parameters()]
    along = [torch.randn_like(x) for x in variables]

    def gradients(**options):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = attend(*inputs, encoding, (2, 3), implementation='reference')[0]
        return torch.autograd.grad(out.cos().sum(), variables, **options)

    found = torch.autograd.grad(gradients(create_graph=True), variables, along, allow_unused=True)
    steps = []
    for sign in (1, -2):
        with torch.no_grad():
            for x, direction in zip(variables, along, strict=True):
                x.add_(direction, alpha=sign * 1e-5)
        steps.append(gradients())
    for value, after, before in zip(found, *steps, strict=True):
        expected = (after - before) / 2e-5
        torch.testing.assert_close(torch.zeros_like(expected) if value is None else value,
                                   expected, rtol=1e-4, atol=1e-4 * (1 + expected.abs().max()))


GRID, PREFIX, DIMS = (4, 5), 2, 16


def attention(cfg, prefix=PREFIX):
    return MultiheadAttention(DIMS, 2, rel_pos_encoding=cfg, num_prefix_tokens=prefix,
                              grid_shape=GRID).double()


@pytest.mark.parametrize('name', examples.RELATIVE)
@pytest.mark.parametrize('prefix', [0, PREFIX])  # alone, `prefix_bias` would train too
def test_attention_is_what_it_was_and_the_encoding_trains(name, prefix):
    """Or it is refused, and zeros would change something."""
    cfg = examples.RELATIVE[name] if isinstance(name, str) else name
    try:
        with_it, refused = attention(dict(cfg, zero_init=True), prefix), False
    except ValueError as error:
        assert ' has no weights with which it changes nothing' in str(error)
        with_it, refused = attention(cfg, prefix), True
        for parameter in with_it.rel_pos_encoding.parameters():
            torch.nn.init.zeros_(parameter)
    without = attention(None, prefix)
    without.load_state_dict({key: value for key, value in with_it.state_dict().items()
                             if 'rel_pos_encoding' not in key})
    x = torch.randn(2, prefix + 20, DIMS, dtype=torch.float64)
    expected, out = without(x, GRID), with_it(x, GRID)
    if refused:
        assert not torch.allclose(out, expected), f'{name} could start from zeros'
        return
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0, msg=lambda found: (
        f'{name} changes attention after start_at_zero, which by default sets all weights to zero; '
        f'set others there, or call refuse_zeros(self). {found}'))
    step(with_it.rel_pos_encoding, out)
    changed = float((with_it(x, GRID) - expected).detach().abs().max())
    assert changed > 1e-4, f'{name} does not train from zeros; start_at_zero must set others'


def step(encoding, out):
    """One of gradient descent."""
    (out * torch.randn_like(out)).sum().backward()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter -= parameter.grad


@pytest.mark.parametrize('cfg', [
    dict(type='PEG'), dict(type='PEG', conv='separable'), dict(type='PEG', conv='dense'),
    dict(type='PEG', num_layers=2, kernel_size=5), dict(type='PEG', bias=False),
    dict(type='LearnedPositionEmbedding')], ids=str)
@pytest.mark.parametrize('masked', [False, True])
def test_tokens_are_what_they_were_and_the_encoding_trains(cfg, masked):
    encoding = build_encoding(dict(cfg, zero_init=True), TokenEncoding, 'pos_encoding',
                              embed_dims=DIMS, grid_shape=GRID).double()
    x = torch.randn(2, PREFIX + 20, DIMS, dtype=torch.float64)
    mask = torch.zeros(2, *GRID, dtype=torch.bool)
    mask[1, 3] = mask[1, :, 4] = True
    out = encoding(x, GRID, num_prefix_tokens=PREFIX, padding_mask=mask if masked else None)
    torch.testing.assert_close(out, x, rtol=0, atol=0)
    step(encoding, out)
    assert (encoding(x, GRID, num_prefix_tokens=PREFIX) - x).abs().max() > 1e-2


def test_without_it_they_start_as_their_papers_say():
    build = dict(contract=TokenEncoding, argument='pos_encoding', embed_dims=4)
    assert build_encoding(dict(type='PEG', zero_init=False), **build).proj[0].weight.abs().sum() > 0
    assert not any(parameter.any() for parameter in IRPE(8, 2).parameters())


def test_timms_network_of_offsets_and_one_that_cannot():
    test_attention_is_what_it_was_and_the_encoding_trains(
        dict(type='LogSpacedCPB', mode='cr', prefix_bias=False), PREFIX)
    with pytest.raises(ValueError, match='LogSpacedCPB with prefix_bias=False and prefix tok'):
        attention(dict(type='LogSpacedCPB', prefix_bias=False, zero_init=True))
