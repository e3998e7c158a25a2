"""Encodings added to a trained model: at first they change nothing, and they train from there."""
import examples
import pytest
import torch
from tinybackbones import BUILD, randomize

from mmposenc.attention import MultiheadAttention
from mmposenc.backbones import checkpoints
from mmposenc.backbones.checkpoints import load_pretrained
from mmposenc.encodings import IRPE, PEG, TokenEncoding, build_encoding

GRID, PREFIX, DIMS = (4, 5), 2, 16
#: Rotations by fixed angles, and kernels of the distance that are never flat.
NO_ZEROS = [name for name in examples.RELATIVE if name == 'CombinedRPE of masks'
            or name.startswith('RotaryEmbedding2D') and 'mixed' not in name
            or name.startswith(('ALiBi2D', 'GTA', 'KERPLE', 'LookHere'))]


def attention(cfg, prefix=PREFIX):
    return MultiheadAttention(DIMS, 2, rel_pos_encoding=cfg, num_prefix_tokens=prefix,
                              grid_shape=GRID).double()


@pytest.mark.parametrize('name', [name for name in examples.RELATIVE if name not in NO_ZEROS])
@pytest.mark.parametrize('prefix', [0, PREFIX])  # alone, `prefix_bias` would train too
def test_attention_is_what_it_was_and_the_encoding_trains(name, prefix):
    torch.manual_seed(0)
    cfg = examples.RELATIVE[name] if isinstance(name, str) else name
    with_it = attention(dict(cfg, zero_init=True), prefix)
    without = attention(None, prefix)
    without.load_state_dict({key: value for key, value in with_it.state_dict().items()
                             if 'rel_pos_encoding' not in key})
    x = torch.randn(2, prefix + 20, DIMS, dtype=torch.float64)
    expected, out = without(x, GRID), with_it(x, GRID)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    (out * torch.randn_like(out)).sum().backward()
    encoding = with_it.rel_pos_encoding
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter -= parameter.grad
    changed = float((with_it(x, GRID) - expected).detach().abs().max())
    assert changed > 1e-4, f'{name} does not train from zeros; start_at_zero must set others'


@pytest.mark.parametrize('cfg', [
    dict(type='PEG'), dict(type='PEG', conv='separable'), dict(type='PEG', conv='dense'),
    dict(type='PEG', num_layers=2, kernel_size=5), dict(type='PEG', bias=False),
    dict(type='LearnedPositionEmbedding')], ids=str)
@pytest.mark.parametrize('masked', [False, True])
def test_tokens_are_what_they_were_and_the_encoding_trains(cfg, masked):
    torch.manual_seed(0)
    encoding = build_encoding(dict(cfg, zero_init=True), TokenEncoding, 'pos_encoding',
                              embed_dims=DIMS, grid_shape=GRID).double()
    x = torch.randn(2, PREFIX + 20, DIMS, dtype=torch.float64)
    mask = torch.zeros(2, *GRID, dtype=torch.bool)
    mask[1, 3] = mask[1, :, 4] = True
    out = encoding(x, GRID, num_prefix_tokens=PREFIX, padding_mask=mask if masked else None)
    torch.testing.assert_close(out, x, rtol=0, atol=0)
    (out * torch.randn_like(out)).sum().backward()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter -= parameter.grad
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


@pytest.mark.parametrize('name', NO_ZEROS)
def test_some_cannot(name):
    with pytest.raises(ValueError, match=' has no weights with which it changes'):
        attention(dict(examples.RELATIVE[name], zero_init=True))


@pytest.mark.parametrize('options', [
    dict(pos_encoding=dict(type='PEG', zero_init=True)),
    dict(rel_pos_encoding=dict(type='IRPE', rpe_on='qkv')),
    dict(rel_pos_encoding=dict(type='ShawRPE', zero_init=True), rel_pos_sharing='stage')], ids=str)
@pytest.mark.parametrize('name', BUILD)
def test_a_file_without_the_encoding_loads_and_says_so(name, options, monkeypatch):
    plain = randomize(BUILD[name]()).eval()
    if name == 'swin' and 'rel_pos_sharing' in options:
        options = {**options, 'rel_pos_sharing': 'layer'}  # the biases of the file are a layer's
    model = BUILD[name](**options).eval()
    said = []
    monkeypatch.setattr(checkpoints, 'print_log', lambda text, *_: said.append(text))
    load_pretrained(model, plain.state_dict(), name='file.pth')
    assert any('file.pth was trained without' in text for text in said)
    x = torch.randn(2, 3, 32, 48)
    torch.testing.assert_close(model(x), plain(x), atol=1e-5, rtol=1e-5)


def test_anything_else_that_is_missing_is_still_an_error():
    model = BUILD['vit'](pos_encoding=dict(type='PEG'))
    state = BUILD['vit']().state_dict()
    del state['blocks.1.norm1.bias']
    with pytest.raises(ValueError, match=r'missing: blocks\.1\.norm1\.bias'):
        load_pretrained(model, state)
    half = BUILD['vit'](pos_encoding=dict(type='PEG', conv='separable')).state_dict()
    del half['pos_encodings.at.after0.0.proj.1.weight']
    with pytest.raises(ValueError, match=r'missing: pos_encodings\.at\.after0\.0\.proj\.1\.weight'):
        load_pretrained(BUILD['vit'](pos_encoding=dict(type='PEG', conv='separable')), half)


@pytest.mark.parametrize('shape', [(6,), (2, 3), (1, 2, 3)])
def test_a_peg_of_ones_own_too(shape):
    peg = PEG(4, dims=len(shape))
    peg.start_at_zero()
    x = torch.randn(1, 6, 4)
    torch.testing.assert_close(peg(x, shape), x, rtol=0, atol=0)
