"""The examples that other tests run over."""
import copy

import examples
import pytest
import torch
from helpers.relative_checks import attend, check_gradients, random_inputs
from helpers.tiny_backbones import randomize

from mmposenc.encodings import ENCODINGS


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
    torch.manual_seed(0)
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
    near, _ = attend(*half, copy.deepcopy(encoding).bfloat16(), *grids)
    assert near.dtype == torch.bfloat16
    assert (near - out).abs().mean() < 0.1 * out.abs().mean()
    check_gradients(encoding, *grids)
