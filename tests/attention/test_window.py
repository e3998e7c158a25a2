"""Window attention against attention in each window. (Swin's against mmdet's and
mmpretrain's: tests/openmmlab/upstream/test_configs.py; timm's: tests/backbones/test_timm.py.)"""
import itertools
import math
from unittest import mock

import examples
import pytest
import torch
from helpers.tiny_backbones import randomize, results

from mmposenc.attention import MultiheadAttention, ShiftWindowAttention, WindowAttention
from mmposenc.attention.fast import chunked
from mmposenc.attention.fast.layout import Chunk
from mmposenc.attention.window import PlainWindowAttention
from mmposenc.encodings import RelativePositionBias
from mmposenc.functional import windows
from mmposenc.functional.windows import Windows

SWIN = dict(type='mmposenc.RelativePositionBias')


def build(encoding):
    return ShiftWindowAttention(24, 3, (4, 4), rel_pos_encoding=encoding).double()


@pytest.mark.parametrize('copied, prefix, own_qk', [
    (False, 2, False), (True, 2, False), (False, 0, True), (False, 1, True)])
@pytest.mark.parametrize('cut', [dict(window_size=(2, 3)), dict(window_count=(2, 2)),
                                 dict(window_count=(4, 1))], ids=str)
def test_each_window_is_a_map_with_the_prefix_tokens(cut, copied, prefix, own_qk):
    """Also where queries and keys are of other tokens, and the last windows have fewer cells."""
    copied = copied and 'window_count' in cut
    (height, width), options = (5, 7), dict(rel_pos_encoding=dict(type='IRPE', rpe_on='qkv'))
    whole = randomize(MultiheadAttention(24, 2, num_prefix_tokens=prefix, **options)).double()
    rows, cols = cut.get('window_size') or (-(-side // count) for side, count in zip(
        (height, width), cut['window_count'], strict=True))
    corners = list(itertools.product(range(0, height, rows), range(0, width, cols)))
    copies = math.prod(cut['window_count']) if copied else 1
    total = prefix * copies
    windows = PlainWindowAttention(
        24, 2, **cut, copied=copied, mask_window_padding=True, num_prefix_tokens=total,
        grid_shape=(height, width), **options).double()
    windows.load_state_dict(whole.state_dict())
    x, other = torch.randn(2, 3, total + height * width, 24, dtype=torch.float64)
    out, weights = windows(x, (height, width), None, True, x_qk=other if own_qk else None)
    prefixes = []
    for number, (top, left) in enumerate(corners):
        first = prefix * number if copied else 0

        def part(tokens, top=top, left=left, first=first):
            cells = tokens[:, total:].unflatten(1, (height, width))[
                :, top:top + rows, left:left + cols]
            return torch.cat((tokens[:, first:first + prefix], cells.flatten(1, 2)), 1)

        grid = min(rows, height - top), min(cols, width - left)
        expected, own = whole(part(x), grid, None, True, x_qk=part(other) if own_qk else None)
        torch.testing.assert_close(part(out)[:, prefix:], expected[:, prefix:])
        if grid == (rows, cols):
            torch.testing.assert_close(weights.unflatten(0, (3, -1))[:, number], own)
        prefixes.append(expected[:, :prefix])
    prefixes = torch.cat(prefixes, 1) if copied else torch.stack(prefixes).mean(0)
    torch.testing.assert_close(out[:, :prefixes.shape[1]], prefixes)


@pytest.mark.parametrize('name', [None, *examples.FIRST])
def test_one_window_is_attention_on_its_grid(name):
    """Any encoding sees the window as its grid; every parameter has a gradient."""
    window = WindowAttention(32, 2, (3, 5), rel_pos_encoding=name and examples.RELATIVE[name])
    randomize(window.double(), 0.3)
    whole = MultiheadAttention(32, 2, rel_pos_encoding=window.rel_pos_encoding).double()
    whole.load_state_dict(window.state_dict())
    x = torch.randn(4, 15, 32, dtype=torch.float64)
    expected = results(whole, lambda x: [whole(x, (3, 5))], x)
    found = results(window, lambda x: [window(x)], x)
    torch.testing.assert_close(found, expected)
    # FIRE's longest distance here is beyond its threshold, which then has no gradient.
    assert all(grad.abs().max() > 0 for key, grad in found[1].items() if 'length_factor' not in key)
    with torch.no_grad():
        torch.testing.assert_close([window(x)], expected[0])


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
    monkeypatch.setattr(torch, 'tensor', mock.Mock(side_effect=AssertionError('a copy')))
    chunked.hide_regions(regions)(Chunk(slice(2, 6), slice(0, 2), slice(0, 5)),
                                  torch.empty(4, 2, 5, 12, device='meta'))


X = torch.randn(1, 16, 24, dtype=torch.float64)
NONE_IS_PADDING = torch.zeros(1, 6, dtype=torch.bool)


def weights_with_padding(**options):
    PlainWindowAttention(24, 2, **options)(torch.randn(1, 6, 24), (2, 3), NONE_IS_PADDING, True)


@pytest.mark.parametrize('call, message', [
    (lambda: build(RelativePositionBias(2, window_size=(4, 4))), 'num_heads=2'),
    (lambda: build(SWIN)(X, (4, 4), torch.zeros(1, 4, 5, dtype=torch.bool)),
     r'padding_mask has shape \(1, 4, 5\)'),
    (lambda: build(SWIN)(X, (4, 4), torch.zeros(1, 4, 4)), r'dtype torch.float32'),
    (lambda: build(SWIN).w_msa(torch.zeros(1, 9, 24)), r'4 \* 4 = 16, 24\) is required'),
    # Not as many as windows, or as tokens of one.
    (lambda: build(SWIN).w_msa(X, torch.zeros(2, 16)), r'regions has shape \(2, 16\)'),
    (lambda: build(SWIN).w_msa(X, torch.zeros(1, 9)), r'regions has shape \(1, 9\)'),
    (lambda: PlainWindowAttention(24, 2, 2)(torch.randn(1, 6, 24), (2, 3), NONE_IS_PADDING[:, 1:]),
     r'key_padding_mask has shape \(1, 5\)'),
    *((lambda options=options: weights_with_padding(**options),
       'need_weights=True with key_padding_mask: .*; give each image alone') for options in (
        dict(window_count=2), dict(window_size=2, whole_positions=True, rel_pos_encoding=dict(
            type='RotaryEmbedding', normalize='separate'))))])
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
