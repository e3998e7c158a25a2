"""Spatial-reduction attention against explicit sums over reduced cells."""
import pytest
import torch

from mmposenc.attention import SpatialReductionAttention


def make(dims=6, heads=2, **options):
    torch.manual_seed(0)
    module = SpatialReductionAttention(dims, heads, **options).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def loop(module, x, hw, x_qk=None):
    """One image (L, C): pool R x R cells one by one, then attend one head and query at a time."""
    ratio, (height, width) = module.sr_ratio, hw

    def reduce(tokens):
        if ratio == 1:
            return tokens
        grid = tokens.view(height, width, -1)
        rows = -(-height // ratio) if module.ceil_mode else height // ratio
        cols = -(-width // ratio) if module.ceil_mode else width // ratio
        cells = []
        for row in range(rows):
            for col in range(cols):
                value = module.sr.bias.clone()
                for i in range(ratio):
                    for j in range(ratio):
                        r, c = row * ratio + i, col * ratio + j
                        if r < height and c < width:
                            value = value + module.sr.weight[:, :, i, j] @ grid[r, c]
                cells.append(value)
        return module.norm(torch.stack(cells))

    dims, heads, encoding = module.embed_dims, module.num_heads, module.rel_pos_encoding
    keys = hw if ratio == 1 else module.reduced_grid(hw)
    x_qk = x if x_qk is None else x_qk
    q = module.q(x_qk)
    k = module.kv(reduce(x_qk))[:, :dims]
    v = module.kv(reduce(x))[:, dims:]
    out = torch.empty_like(x)
    size = dims // heads
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for index in range(len(x)):
            logits = (k[:, part] @ q[index, part]) * size ** -0.5
            if encoding is not None:
                logits = logits + encoding.logits(*(
                    x.view(1, -1, heads, size).transpose(1, 2) * scale
                    for x, scale in ((q, size ** -0.5), (k, 1))), hw, keys)[0, head, index]
            weights = logits.softmax(0)
            out[index, part] = weights @ v[:, part]
            if encoding is not None:
                pairs = torch.zeros(1, heads, len(x), len(k), dtype=x.dtype)
                pairs[0, head, index] = weights
                out[index, part] += encoding.values(pairs, hw, keys)[0, head, index]
    return module.proj(out)


@pytest.mark.parametrize('hw, options', [
    ((4, 6), dict(sr_ratio=2)), ((4, 6), dict(sr_ratio=1)), ((5, 7), dict(sr_ratio=2)),
    ((5, 7), dict(sr_ratio=2, ceil_mode=True)), ((1, 7), dict(sr_ratio=4, ceil_mode=True)),
    ((6, 1), dict(sr_ratio=1)), ((8, 8), dict(sr_ratio=4, qkv_bias=False)),
    *((hw, dict(sr_ratio=ratio, ceil_mode=ceil, dims=8, rel_pos_encoding=dict(
        type='IRPE', method=method, rpe_on='qkv'))) for hw, ratio, ceil, method in (
            ((6, 4), 2, False, 'product'), ((7, 5), 2, True, 'cross'),
            ((7, 5), 3, False, 'product'), ((4, 9), 4, True, 'euclidean'),
            ((1, 6), 1, False, 'cross')))], ids=str)
@pytest.mark.parametrize('own_qk', [False, True])
def test_equals_the_loop(hw, options, own_qk):
    module = make(**options)
    x = torch.randn(2, hw[0] * hw[1], module.embed_dims, dtype=torch.float64)
    x_qk = torch.randn_like(x) if own_qk else None
    out = module(x, hw, x_qk=x_qk)
    for image in range(2):
        qk = None if x_qk is None else x_qk[image]
        torch.testing.assert_close(out[image], loop(module, x[image], hw, qk))


@pytest.mark.parametrize('ratio', [1, 2, 3])
def test_valid_tokens_do_not_see_padding(ratio):
    module = make(sr_ratio=ratio, ceil_mode=True)
    x = torch.randn(2, 7, 8, 6, dtype=torch.float64)
    extents = [(7, 3), (4, 8)]
    mask = torch.ones(2, 7, 8, dtype=torch.bool)
    for image, (height, width) in enumerate(extents):
        mask[image, :height, :width] = False
    for fill in (x, x.masked_fill(mask[..., None], 1e3)):
        out = module(fill.flatten(1, 2), (7, 8), mask).view(2, 7, 8, 6)
        for image, (height, width) in enumerate(extents):
            alone = x[image, :height, :width].reshape(1, -1, 6)
            torch.testing.assert_close(out[image, :height, :width].reshape(1, -1, 6),
                                       module(alone, (height, width)))


def test_gradients_and_weights():
    module = make(sr_ratio=2)
    x = torch.randn(1, 8, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: module(t, (2, 4)), x)
    out, weights = module(x, (2, 4), need_weights=True)
    torch.testing.assert_close(out, module(x, (2, 4)))
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 8, dtype=torch.float64))
    assert weights.shape == (1, 2, 8, 2)
    out.square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


def test_key_positions_are_the_centres_of_the_cells():
    grid = make(sr_ratio=4).reduced_grid((9, 13))
    assert (grid.height, grid.width) == (2, 3)
    assert [(i + 0.5) * grid.stride_h - 0.5 for i in range(2)] == [1.5, 5.5]


@pytest.mark.parametrize('options, message', [
    (dict(dims=5), 'embed_dims=5 must be a positive multiple of num_heads=2'),
    (dict(sr_ratio=0), 'sr_ratio=0 must be at least 1'),
    (dict(sr_ratio=2, num_prefix_tokens=1), 'num_prefix_tokens=1 with sr_ratio=2')])
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_a_grid_smaller_than_a_cell_is_named():
    with pytest.raises(ValueError, match=r'hw_shape=\(1, 9\) is smaller than one cell'):
        make(sr_ratio=2)(torch.zeros(1, 9, 6, dtype=torch.float64), (1, 9))
