"""Biases of windows, decomposed ones and convolutions of values against mmpretrain's and timm's."""
import pytest
import torch
from relative_checks import random_inputs

import mmposenc  # noqa: F401  before timm
from mmposenc.encodings import (
    CRPE,
    DecomposedRPE,
    LogSpacedCPB,
    RelativePositionBias,
    UndirectedPositionBias,
)
from mmposenc.functional import as_grid


@pytest.mark.parametrize('grid', [(4, 5), (5, 5), (3, 7), (9, 2), (1, 6)])
def test_beits_table_of_any_size(grid):
    """Its three rows of the class token last, made for 4 x 5 cells and resized by timm to the grid:
    biases of all pairs, and gradients of the old table through those of timm's new one, which is
    linear in the old."""
    beit = pytest.importorskip('timm.models.beit')
    resize = pytest.importorskip('timm.layers.pos_embed_rel').resize_rel_pos_bias_table
    theirs = beit.RelativePositionBias((4, 5), 2)
    old = torch.nn.init.normal_(theirs.relative_position_bias_table).detach().clone()
    ours = RelativePositionBias(2, window_size=(4, 5), num_prefix_tokens=1, resize='geometric')
    with torch.no_grad():
        ours.relative_position_bias_table.copy_(old[:-3])
        ours.prefix_bias.copy_(old[-3:].t())
    theirs.set_window_size(grid)
    q = torch.zeros(1, 2, 1 + grid[0] * grid[1], 4)
    expected, got = theirs(), ours.logits(q, q, grid)[0]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(expected.shape)
    new_grad, = torch.autograd.grad((expected * weights).sum(), list(theirs.parameters()))
    units = torch.cat((torch.eye(63), torch.zeros(3, 63)))  # the resized table of each old entry
    moved = resize(units, grid, (len(new_grad), 63), old_window_size=(4, 5))[:-3]
    table_grad, prefix_grad = torch.autograd.grad((got * weights).sum(), [
        ours.relative_position_bias_table, ours.prefix_bias])
    torch.testing.assert_close(table_grad, moved.t() @ new_grad[:-3], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(prefix_grad, new_grad[-3:].t(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize('mode', ['swin', 'cr'])
@pytest.mark.parametrize('prefix_tokens', [0, 1])
@pytest.mark.parametrize('window_size', [(4, 4), (3, 5), (1, 6), (6, 2)])
def test_timms_network(mode, prefix_tokens, window_size):
    """timm's RelPosMlp, whose network is made for no size in mode 'cr', and here for any in both;
    it adds nothing to pairs with the class token."""
    rel = pytest.importorskip('timm.layers.pos_embed_rel')
    theirs = rel.RelPosMlp((4, 4), 3, hidden_dim=7, prefix_tokens=prefix_tokens, mode=mode).eval()
    ours = LogSpacedCPB(3, hidden_dims=7, num_prefix_tokens=prefix_tokens, mode=mode,
                        prefix_bias=False)
    with torch.no_grad():
        for target, source in zip(ours.parameters(), theirs.parameters(), strict=True):
            target.copy_(torch.nn.init.normal_(source))
    theirs.set_window_size(window_size)
    expected = theirs.get_bias()
    q = torch.zeros(1, 3, expected.shape[-1], 4)
    got = ours.logits(q, q, window_size)
    if mode == 'swin' and 1 in window_size:  # timm divides 0 by 0
        assert expected.isnan().any() and not got.isnan().any()
        return
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(expected.shape)
    own, their = (torch.autograd.grad((bias * weights).sum(), list(module.parameters()))
                  for bias, module in ((got, ours), (expected, theirs)))
    torch.testing.assert_close(own, their, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(('q_grid', 'k_grid'), [
    ((3, 5), (3, 5)), ((7, 4), (7, 4)), ((1, 9), (1, 9)), ((6, 8), (3, 2)), ((3, 2), (6, 8)),
    ((7, 5), (3, 4))])
def test_sams_decomposed_bias(q_grid, k_grid):
    from timm.models.vision_transformer_sam import get_decomposed_rel_pos_bias
    encoding = DecomposedRPE(4, 1, grid_shape=(3, 5))
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    expected = get_decomposed_rel_pos_bias(q[:, 0], encoding.row_table, encoding.col_table,
                                           q_grid, k_grid)
    got = encoding.logits(q * 4 ** -0.5, k, q_grid, k_grid)
    torch.testing.assert_close(got[:, 0], expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize('grid', [(4, 4), (3, 8), (1, 9)])
@pytest.mark.parametrize('windows', [None, 3])
def test_coats_convolutions(grid, windows):
    coat = pytest.importorskip('timm.models.coat')
    theirs = coat.ConvRelPosEnc(4, 8, windows or {3: 2, 5: 3, 7: 3}).double()
    ours = CRPE(4, 8, windows=windows, num_prefix_tokens=1).double()
    ours.load_state_dict(theirs.state_dict())
    q, _, v = random_inputs(ours, grid, None)
    theirs.load_state_dict(ours.state_dict())
    cells = as_grid(grid)
    term, = ours.terms(cells, cells)
    found = []
    for module, run in ((theirs, lambda *x: theirs(*x, grid)), (ours, term.output)):
        leaves = [x.clone().requires_grad_() for x in (q, v)]
        out = run(*leaves)
        grads = torch.autograd.grad(out.cos().sum(), [*leaves, *module.parameters()])
        found.append([out, *grads])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize('window_size', [(4, 4), (3, 5), (1, 6)])
@pytest.mark.parametrize(('module', 'name', 'sizes'), [
    ('levit', 'Attention', (8, 4)), ('efficientformer', 'Attention', ()),
    ('tiny_vit', 'Attention', (16, 8))])
def test_undirected_tables(module, name, sizes, window_size):
    theirs = getattr(pytest.importorskip(f'timm.models.{module}'), name)(
        *sizes, num_heads=2, resolution=window_size)
    ours = UndirectedPositionBias(2, window_size=window_size)
    table = torch.nn.init.normal_(ours.attention_biases).detach()
    theirs.load_state_dict({'attention_biases': table}, strict=False)
    q = torch.zeros(1, 2, window_size[0] * window_size[1], 4)
    torch.testing.assert_close(ours.logits(q, q, window_size)[0],
                               theirs.get_attention_biases(q.device), atol=0, rtol=0)
