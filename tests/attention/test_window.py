"""Window attention against loops over pairs of tokens, and itself. (Swin's against mmdet's and
mmpretrain's: tests/backbones/test_openmmlab.py.)"""
import itertools
import math
from unittest import mock

import examples
import pytest
import torch
from helpers.relative_checks import chunks_of
from helpers.tiny_backbones import randomize, run

from mmposenc.attention import MultiheadAttention, ShiftWindowAttention, WindowAttention
from mmposenc.attention.fast import chunked
from mmposenc.attention.fast.layout import Chunk, Layout
from mmposenc.attention.window import PlainWindowAttention
from mmposenc.encodings import RelativePositionBias
from mmposenc.functional import windows
from mmposenc.functional.windows import Windows

SWIN = dict(type='mmposenc.RelativePositionBias')
#: One of each kind of term, by its name in the examples.
NAMES = ('RelativePositionBias', 'LogSpacedCPB', 'RotaryEmbedding mixed',
         'RotaryEmbedding of DINOv3', 'IRPE product qkv', 'IRPE product bias', 'IRPE cross k',
         'ShawRPE with values', 'HuangRPE', 'LePE', 'SASARPE', 'TransformerXLRPE',
         'QueryAbsolute1D', 'QueryRelative1D', 'QueryRelative2D')
ENCODINGS = {'none': None, **{name: examples.RELATIVE[name] for name in NAMES}}


@pytest.fixture(params=[False, True], ids=['recompute', 'keep'])
def small_chunks(request):
    """Several runs of windows even in small tests, of which the last is short."""
    with chunks_of(2 * 3 * 16 ** 2, long=False, keep=request.param):
        yield


def build(window=(4, 4), shift=0, encoding=SWIN, dims=24, heads=3, seed=0, **options):
    torch.manual_seed(seed)
    module = ShiftWindowAttention(dims, heads, window, shift, rel_pos_encoding=encoding, **options)
    randomize(module, 0.3)
    return module.double()


def naive(module, x, hw_shape, padding_mask=None):
    """Every token looks at every token of its window that came there without wrapping around."""
    (height, width), (wh, ww), (sh, sw) = hw_shape, module.window_size, module.shift_size
    attention, table = module.w_msa, module.w_msa.rel_pos_encoding.relative_position_bias_table
    rows, cols = math.ceil(height / wh) * wh, math.ceil(width / ww) * ww
    full = x.new_zeros(x.shape[0], rows, cols, x.shape[2])
    full[:, :height, :width] = x.unflatten(1, hw_shape)
    q, k, v = attention.qkv(full).unflatten(-1, (3, attention.num_heads, -1)).unbind(3)

    def place(cell, shift, size, window):
        """(window, cell inside it, wrapped around) of a row or column."""
        moved = (cell - shift) % size
        return moved // window, moved % window, cell < shift

    out = torch.zeros_like(full)
    cells = [(r, c) for r in range(rows) for c in range(cols)]
    for b in range(x.shape[0]):
        for r, c in cells:
            pr, pc = place(r, sh, rows, wh), place(c, sw, cols, ww)
            seen = []
            for r2, c2 in cells:
                qr, qc = place(r2, sh, rows, wh), place(c2, sw, cols, ww)
                hidden = module.mask_window_padding and (r2 >= height or c2 >= width)
                if pr[::2] == qr[::2] and pc[::2] == qc[::2] and not hidden:
                    index = (pr[1] - qr[1] + wh - 1) * (2 * ww - 1) + pc[1] - qc[1] + ww - 1
                    seen.append((r2, c2, index))
            if not seen:
                continue
            for h in range(attention.num_heads):
                scores = torch.stack([q[b, r, c, h] @ k[b, r2, c2, h] * attention.head_dims ** -0.5
                                      + table[i, h] for r2, c2, i in seen])
                weights = scores.softmax(0)
                out[b, r, c].unflatten(-1, (attention.num_heads, -1))[h] = sum(
                    w * v[b, r2, c2, h] for w, (r2, c2, _) in zip(weights, seen, strict=True))
    return attention.proj(out[:, :height, :width]).flatten(1, 2)


@pytest.mark.parametrize(('hw_shape', 'window', 'shift'), [
    ((4, 6), (2, 3), (1, 1)), ((5, 5), (2, 3), (1, 2)), ((3, 7), (4, 2), (2, 0)),
    ((1, 5), (3, 3), (1, 1)), ((6, 1), (2, 3), (0, 0))])
@pytest.mark.parametrize('mask_window_padding', [False, True])
def test_against_loops(hw_shape, window, shift, mask_window_padding):
    module = build(window, shift, dims=4, heads=2, pad_small_map=True,
                   mask_window_padding=mask_window_padding)
    x = torch.randn(2, hw_shape[0] * hw_shape[1], 4, dtype=torch.float64)
    with torch.no_grad():
        expected = naive(module, x, hw_shape)
        torch.testing.assert_close(module(x, hw_shape), expected)
    torch.testing.assert_close(module(x, hw_shape).detach(), expected)


@pytest.mark.parametrize('own_qk', [False, True])
def test_masked_windows_end_at_the_map(own_qk):
    """Each is attention on a map of its own, also where queries and keys are of other tokens."""
    options = dict(rel_pos_encoding=dict(type='mmposenc.QueryRelative2D'))
    plain = PlainWindowAttention(24, 2, (2, 3), mask_window_padding=True, **options).double()
    whole = MultiheadAttention(24, 2, grid_shape=(2, 3), **options).double()
    whole.load_state_dict(plain.state_dict())
    x, other = torch.randn(2, 2, 5, 7, 24, dtype=torch.float64)
    given = dict(x_qk=other.flatten(1, 2)) if own_qk else {}
    got = plain(x.flatten(1, 2), (5, 7), **given).unflatten(1, (5, 7))
    weights = plain(x.flatten(1, 2), (5, 7), None, True, **given)[1].unflatten(0, (2, 3, 3))
    for row, col in itertools.product(range(3), range(3)):
        part = slice(None), slice(2 * row, 2 * row + 2), slice(3 * col, 3 * col + 3)
        given = dict(x_qk=other[part].flatten(1, 2)) if own_qk else {}
        hw = tuple(x[part].shape[1:3])
        expected, own = whole(x[part].flatten(1, 2), hw, need_weights=True, **given)
        torch.testing.assert_close(got[part], expected.unflatten(1, hw))
        if hw == (2, 3):
            torch.testing.assert_close(weights[:, row, col], own)


@pytest.mark.usefixtures('small_chunks')
@pytest.mark.parametrize('mask_window_padding', [False, True])
@pytest.mark.parametrize('shift', [0, 2])
@pytest.mark.parametrize('encoding', [
    'RelativePositionBias', 'IRPE product qkv', 'RotaryEmbedding mixed', 'LogSpacedCPB', 'LePE'])
def test_padding_changes_nothing(mask_window_padding, shift, encoding):
    """Each image of a padded batch equals that image alone, forward and backward."""
    module = build((4, 4), shift, ENCODINGS[encoding], pad_small_map=True,
                   mask_window_padding=mask_window_padding, cosine=encoding == 'LogSpacedCPB')
    sizes, batch_hw = [(7, 10), (9, 5), (3, 11), (4, 4)], (9, 13)
    padding_mask = torch.ones(4, *batch_hw, dtype=torch.bool)
    batched = torch.randn(4, *batch_hw, 24, dtype=torch.float64)  # padding holds garbage
    for index, (h, w) in enumerate(sizes):
        padding_mask[index, :h, :w] = False
    out, dx, grads = run(module, batched.flatten(1, 2), batch_hw, padding_mask)
    out, dx = out.unflatten(1, batch_hw), dx.unflatten(1, batch_hw)
    summed = {name: torch.zeros_like(grad) for name, grad in grads.items()}
    for index, (h, w) in enumerate(sizes):
        alone = batched[index:index + 1, :h, :w].reshape(1, h * w, 24)
        expected, expected_dx, alone_grads = run(module, alone, (h, w))
        torch.testing.assert_close(out[index, :h, :w].flatten(0, 1), expected[0])
        torch.testing.assert_close(dx[index, :h, :w].flatten(0, 1), expected_dx[0])
        for name, grad in alone_grads.items():
            summed[name] += grad
    assert out[padding_mask].abs().max() == 0 and dx[padding_mask].abs().max() == 0
    torch.testing.assert_close(grads, summed, atol=1e-8, rtol=1e-6)
    full = torch.zeros(4, *batch_hw, dtype=torch.bool)
    torch.testing.assert_close(module(batched.flatten(1, 2), batch_hw, full),
                               module(batched.flatten(1, 2), batch_hw))


@pytest.mark.parametrize('name', ENCODINGS)
def test_one_window_is_attention_on_its_grid(name):
    """Any encoding sees the window as its grid; every parameter has a gradient."""
    window = WindowAttention(24, 2, (3, 5), rel_pos_encoding=ENCODINGS[name]).double()
    randomize(window, 0.3)
    whole = MultiheadAttention(24, 2, rel_pos_encoding=window.rel_pos_encoding).double()
    whole.load_state_dict(window.state_dict())
    x = torch.randn(4, 15, 24, dtype=torch.float64)
    expected, expected_dx, expected_grads = run(whole, x, (3, 5))
    out, dx, grads = run(window, x)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(dx, expected_dx)
    for key, grad in grads.items():
        torch.testing.assert_close(grad, expected_grads[key])
        assert grad.abs().max() > 0, key
    with torch.no_grad():
        torch.testing.assert_close(window(x), expected)


@pytest.mark.parametrize('shift', [(0, 0), (1, 2)])
def test_join_undoes_partition_and_export_has_the_same_windows(shift, monkeypatch):
    x, found, cutting = torch.randn(2, 5 * 7, 3), [], Windows((5, 7), (2, 4), shift)
    for exporting in (False, True):
        monkeypatch.setattr(windows, 'is_exporting', lambda exporting=exporting: exporting)
        found.append(cutting.cut(x))
        assert torch.equal(cutting.join(found[-1]), x)
    assert found[0].shape == (2 * 3 * 2, 8, 3) and torch.equal(*found)


@pytest.mark.parametrize('shift', [(0, 0), (1, 2)])
def test_derivatives_of_cutting_and_joining(shift):
    """Of the first and second order, forward and batched, where rows are read one by one."""
    cutting = Windows((3, 5), (2, 4), shift)
    x = torch.randn(2, 15, 2, dtype=torch.double, requires_grad=True)
    parts = cutting.cut(x).detach().requires_grad_()
    for function, arg in ((cutting.cut, x), (cutting.join, parts)):
        assert torch.autograd.gradcheck(function, arg, check_forward_ad=True,
                                        check_batched_grad=True)
        assert torch.autograd.gradgradcheck(function, arg)
    assert cutting.cut(x[:0]).shape == (0, 8, 2) and cutting.join(parts[:0]).shape == (0, 15, 2)


def test_an_accelerator_gets_no_list_of_windows_from_the_host(monkeypatch):
    """Which would wait until it is copied, once a chunk."""
    regions = torch.zeros(3, 12, dtype=torch.long, device='meta')
    hidden_pairs = chunked._function_hiding_regions(regions, Layout(None, None, 0, 12, 12))
    monkeypatch.setattr(torch, 'tensor', mock.Mock(side_effect=AssertionError('a copy')))
    (images, hidden), = hidden_pairs(Chunk(slice(2, 6), slice(0, 2), slice(0, 5)))
    assert (images, hidden.shape) == (slice(0, 4), (4, 1, 5, 12))


@pytest.mark.parametrize(('options', 'message'), [
    (dict(dims=25), r'embed_dims=25 must be a positive multiple of num_heads=3'),
    (dict(window=(4, 0)), r'window_size=\(4, 0\) must be at least \(1, 1\)'),
    (dict(shift=4), r'shift_size=4 must be at least 0 and less than window_size=\(4, 4\)'),
    (dict(window=(4, 2), shift=(1, 2)), r'shift_size=\(1, 2\) must be'),
    (dict(encoding=dict(type='mmposenc.ShawRPE', num_prefix_tokens=1)), r'num_prefix_tokens=1'),
    (dict(encoding=RelativePositionBias(2, window_size=(4, 4))), r'num_heads=2'),
])
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_bad_inputs():
    module = build()
    x = torch.randn(1, 16, 24, dtype=torch.float64)
    with pytest.raises(ValueError, match=r'x has 16 tokens, but hw_shape=\(3, 5\)'):
        module(x, (3, 5))
    with pytest.raises(ValueError, match=r'padding_mask has shape \(1, 4, 5\)'):
        module(x, (4, 4), torch.zeros(1, 4, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r'dtype torch.float32'):
        module(x, (4, 4), torch.zeros(1, 4, 4))
    with pytest.raises(ValueError, match=r'4 \* 4 = 16, 24\) is required'):
        module.w_msa(torch.zeros(1, 9, 24))
    for shape in (2, 16), (1, 9):  # not as many as windows, or as tokens of one
        with pytest.raises(ValueError, match=rf'regions has shape \({shape[0]}, {shape[1]}\)'):
            module.w_msa(x, torch.zeros(shape))
    plain = PlainWindowAttention(24, 2, 2)
    with pytest.raises(ValueError, match=r'key_padding_mask has shape \(1, 5\)'):
        plain(torch.randn(1, 6, 24), (2, 3), torch.zeros(1, 5, dtype=torch.bool))
    none_is_padding = torch.zeros(1, 6, dtype=torch.bool)
    for options in (dict(window_count=2),
                    dict(window_size=2, whole_positions=True, rel_pos_encoding=dict(
                        type='RotaryEmbedding', normalize='separate'))):
        with pytest.raises(ValueError, match=r'need_weights=True with key_padding_mask: .*; give '
                                             r'each image alone'):
            PlainWindowAttention(24, 2, **options)(
                torch.randn(1, 6, 24), (2, 3), none_is_padding, need_weights=True)
    for options, message in (
            (dict(window_size=2, window_count=2), 'window_size=2 and window_count=2: windows need'),
            (dict(), 'window_size=None and window_count=None: windows need one'),
            (dict(window_count=(0, 2)), r'window_count=\(0, 2\) must be at least'),
            (dict(window_size=2, copied=True), 'window_size=2 with copied prefix tokens'),
            (dict(window_size=2, whole_positions=True, rel_pos_encoding=dict(type='GTA')),
             'rel_pos_encoding is GTA'),
            (dict(window_size=2, whole_positions=True, rel_pos_encoding=[
                dict(type='RotaryEmbedding'), dict(type='GTA')]),
             'rel_pos_encoding is CombinedRPE')):
        with pytest.raises(ValueError, match=message):
            PlainWindowAttention(8, 2, **options)
