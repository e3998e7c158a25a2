"""Encodings added to a trained model: at first they change nothing, and they train from there."""
import examples
import pytest
import torch

from mmposenc.attention import MultiheadAttention
from mmposenc.encodings import IRPE, TokenEncoding, build_encoding

GRID, PREFIX, DIMS = (4, 5), 2, 16


def attention(cfg, prefix=PREFIX):
    return MultiheadAttention(DIMS, 2, rel_pos_encoding=cfg, num_prefix_tokens=prefix,
                              grid_shape=GRID).double()


@pytest.mark.parametrize('name', examples.RELATIVE)
@pytest.mark.parametrize('prefix', [0, PREFIX])  # alone, `prefix_bias` would train too
def test_attention_is_what_it_was_and_the_encoding_trains(name, prefix):
    """Or it is refused, and zeros would change something."""
    torch.manual_seed(0)
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


@pytest.mark.parametrize('cfg, message', [
    (dict(type='PEG', norm_act=True), "norm_act=True, or frozen=True: a PEG that starts"),
    (dict(type='PEG', padding='none'), "padding='none'"), (dict(type='PEG', frozen=True), 'frozen'),
    (dict(type='SinCosPositionEncoding'), 'SinCosPositionEncoding has no weights with which'),
    (dict(type='ContextPool'), 'ContextPool has no weights')], ids=str)
def test_what_cannot_start_so(cfg, message):
    with pytest.raises(ValueError, match=message):
        build_encoding(dict(cfg, zero_init=True), TokenEncoding, 'pos_encoding', embed_dims=8)


def test_timms_network_of_offsets_and_one_that_cannot():
    test_attention_is_what_it_was_and_the_encoding_trains(
        dict(type='LogSpacedCPB', mode='cr', prefix_bias=False), PREFIX)
    with pytest.raises(ValueError, match='LogSpacedCPB with prefix_bias=False and prefix tok'):
        attention(dict(type='LogSpacedCPB', prefix_bias=False, zero_init=True))

