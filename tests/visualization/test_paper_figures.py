"""The numbers that figures show against computations of their own."""
import math

import numpy as np
import pytest
import torch
from tinyfigures import IRPE, close, deit, draw, inputs_of, naive_weights, pvt, subject, swin
from torch import nn

from mmposenc.backbones import count_macs
from mmposenc.encodings import PEG
from mmposenc.functional import Grid, bucket_ids
from mmposenc.lab.figures.attention_figures import can_leave_out, without_encodings
from mmposenc.lab.figures.paper_figures import Choice, Subject, draw_figure
from mmposenc.lab.figures.subjects import NothingToShow
from mmposenc.lab.figures.token_figures import cosine_similarity


def test_matrix_is_the_softmax_of_the_logits():
    model = deit(rel_pos_encoding=IRPE)
    expected = naive_weights(model, 1)
    drawing = draw('matrix', model, block=1)
    found = drawing.arrays
    assert len({axes.images[0].get_clim() for axes in drawing.figure.axes}) == 1
    close(found['weights_0'], expected.mean(0))
    assert found['weights_0'].shape == (21, 21)
    # The other panel: the same weights in a model that never had encodings.
    plain = deit()
    plain.load_state_dict(model.state_dict(), strict=False)
    close(found['weights_1'], naive_weights(plain, 1).mean(0))
    assert np.abs(found['weights_0'] - found['weights_1']).max() > 0.01
    one = draw('matrix', model, block=1, head=1, prefix=False)
    close(one.arrays['weights_0'], expected[1, 1:, 1:])
    images = [axes.images[0].get_array() for axes in one.figure.axes if axes.images]
    np.testing.assert_array_equal(images[0], one.arrays['weights_0'])
    assert list(draw('matrix', plain).arrays) == ['weights_0']
    # Of several models a panel each, for figures that show several.
    both = draw_figure('matrix', [subject(model), subject(plain)], Choice(block=1)).arrays
    close(both['weights_0'], expected.mean(0))
    close(both['weights_1'], naive_weights(plain, 1).mean(0))
    with pytest.raises(ValueError, match="figure='kernels' shows one model, but 2 were given"):
        draw_figure('kernels', [subject(model), subject(plain)], Choice())


@torch.no_grad()
def test_matrix_of_a_detrs_encoder():
    """Queries and keys with their sine positions, by the weights that mmcv names."""
    import tinydetr
    from mmdet.structures import DetDataSample
    model = tinydetr.build(tinydetr.detr(attn=dict(rel_pos_encoding=tinydetr.IRPE))).eval()
    image = torch.randn(1, 3, 96, 128, generator=torch.Generator().manual_seed(1))
    sample = DetDataSample(metainfo=dict(batch_input_shape=(96, 128), img_shape=(96, 128)))
    detector = Subject(model, lambda: model(image, [sample], mode='tensor'), 'x')
    attn, calls = model.encoder.layers[1].self_attn, []
    hook = attn.register_forward_pre_hook(
        lambda _, args, kwargs: calls.append(args[0] + kwargs['query_pos']), with_kwargs=True)
    found = draw_figure('matrix', [detector], Choice(block=5, head=1)).arrays
    hook.remove()
    q, k = (nn.functional.linear(calls[0], attn.attn.in_proj_weight[part], bias)
            .view(1, 12, 2, 8).transpose(1, 2) for part, bias in
            ((slice(0, 16), attn.attn.in_proj_bias[:16]),
             (slice(16, 32), attn.attn.in_proj_bias[16:32])))
    plain = q @ k.transpose(-2, -1) / math.sqrt(8)
    logits = plain + attn.rel_pos_encoding.logits(q / math.sqrt(8), k, (3, 4))
    close(found['weights_0'], logits.softmax(-1)[0, 1].numpy())
    assert np.abs(found['weights_0'] - plain.softmax(-1)[0, 1].numpy()).max() > 1e-3
    assert len(found) == 2  # the second without iRPE in either layer


def test_muted_models_leave_nothing_behind():
    model = deit(rel_pos_encoding=IRPE, pos_encoding=dict(type='mmposenc.PEG'))
    image = torch.randn(1, 3, 32, 40)
    before, names = model(image)[0], list(model.state_dict())
    plain = deit()
    plain.load_state_dict(model.state_dict(), strict=False)
    assert can_leave_out(model) and not can_leave_out(plain)
    with without_encodings(model):
        torch.testing.assert_close(model(image)[0], plain(image)[0])
    torch.testing.assert_close(model(image)[0], before)
    assert list(model.state_dict()) == names
    shrinking = deit(pos_encoding=dict(type='mmposenc.PEG', padding='none'))
    with pytest.raises(ValueError, match='changes the grid'), without_encodings(shrinking):
        pass
    assert not shrinking.pos_encodings.at['after0'][0]._forward_hooks
    assert list(draw('matrix', shrinking, block=1).arrays) == ['weights_0']


@pytest.mark.parametrize('dims, options, shape', [
    (192, dict(), (12, 16)), (192, dict(kernel_size=5, num_layers=2), (12, 16)),
    (192, dict(conv='separable', kernel_size=7), (12, 16)), (7, dict(), (2, 4)),
    (4, dict(conv='dense', num_layers=2), (4, 4))])
def test_kernels_are_the_weights(dims, options, shape):
    """In rows, of which the last may not be full."""
    peg = PEG(dims, norm_act=True, **options)
    drawing = draw_figure('kernels', [Subject(nn.Sequential(peg), lambda: None, 'x')], Choice())
    convs = [layer for layer in peg.proj
             if isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1)]
    assert len(drawing.arrays) == len(convs) == options.get('num_layers', 1)
    for layer, conv in enumerate(convs):
        found = drawing.arrays[f'kernels_{layer}']
        weight = conv.weight.detach().flatten(0, 1).numpy()
        assert found.shape[:2] == shape
        flat = found.reshape(-1, *found.shape[2:])
        np.testing.assert_array_equal(flat[:len(weight)], weight)
        assert np.isnan(flat[len(weight):]).all()
    image = drawing.figure.axes[0].images[0].get_array()
    side = options.get('kernel_size', 3)
    np.testing.assert_array_equal(image[:side, side + 1:2 * side + 1],
                                  drawing.arrays['kernels_0'][0, 1])


@pytest.mark.parametrize('ratio', [1.9, 3.0])
def test_buckets_and_the_index_function(ratio):
    """Those of ``bucket_ids``, of which functional/test_buckets.py asks the paper's formulas."""
    model = deit(rel_pos_encoding=dict(IRPE, ratio=ratio), img_size=(56, 72))
    places, cells = ((0.0, 0.0), (0.5, 0.5), (0.99, 0.2)), [(0, 0), (3, 4), (6, 1)]
    found = draw('buckets', model, (56, 72), places=places).arrays
    assert found.pop('cells').tolist() == [list(cell) for cell in cells]
    rows, columns = bucket_ids('cross', (7, 9), ratio=ratio)
    expected = {'cross, rows': rows, 'cross, columns': columns, **{
        kind: bucket_ids(kind.split()[0], (7, 9), ratio=ratio,
                         quantization='rank' if 'rank' in kind else 'squared') for kind in (
            'euclidean', 'quantization by rank (paper)', 'quantization by square (release)',
            'product')}}
    assert found.keys() == expected.keys()
    for kind, maps in found.items():
        ids = expected[kind][[row * 9 + col for row, col in cells]]
        np.testing.assert_array_equal(maps, ids.view(3, 7, 9).numpy())
    found = draw('index', model, (56, 72)).arrays
    reach = int(1.25 * 8 * ratio)  # a little beyond gamma
    assert found['offsets'].tolist() == list(range(-reach, reach + 1))
    for index in ('piecewise', 'clip'):
        line = bucket_ids('cross', (1, reach + 1), ratio=ratio, index=index)[1] - int(2 * ratio)
        assert found[index].tolist() == [*line[0].flip(0).tolist(), *line[1:, 0].tolist()]


def test_buckets_of_reduced_keys():
    """Keys lie at the centres of the 2 x 2 cells that they pool; a ninth row has none."""
    model = pvt(rel_pos_encoding=IRPE)
    drawing = draw('buckets', model, (36, 40), places=((0.99, 0.0),))
    found, = drawing.arrays['product']
    assert found.shape == (4, 5) and drawing.arrays['cells'].tolist() == [[8, 0]]
    ids = bucket_ids('product', (9, 10), Grid(4, 5, 2.0, 2.0), ratio=1.9)
    np.testing.assert_array_equal(found.ravel(), ids[8 * 10].numpy())
    # What is added there, in its cell of the sheet.
    biased = pvt(rel_pos_encoding=dict(IRPE, mode='bias'))
    table = biased.stages[0].blocks[0].attn.rel_pos_encoding.table_k
    nn.init.normal_(table)
    maps = draw('references', biased, (36, 40), references=9).arrays
    assert maps['maps'].shape == (9, 9, 4, 5) and maps['cells'][8, 0].tolist() == [8, 0]
    np.testing.assert_array_equal(maps['maps'][8, 0], table.detach().numpy()[0, found])
    marker = drawing.figure.axes[-1].lines[0]
    assert (marker.get_ydata()[0], marker.get_xdata()[0]) == (3.75, -0.25)


@torch.no_grad()
def test_what_a_peg_adds_beside_the_tokens():
    """In the second stage, whose tokens the first one made; the scale of channels is one."""
    model = pvt(pos_encoding=dict(type='mmposenc.PEG'))
    peg = model.stages[1].pos_encodings.at['after0'][0]
    tokens = inputs_of(peg, model)[0]
    added = peg.proj(tokens.transpose(1, 2).view(1, 8, 4, 5)).flatten(2).transpose(1, 2)
    drawing = draw('added', model, block=1)
    close(drawing.arrays['norm'].ravel(), added.norm(dim=-1)[0].numpy())
    close(drawing.arrays['share'].ravel(), (added.norm(dim=-1) / tokens.norm(dim=-1))[0].numpy())
    images = [axes.images[-1] for axes in drawing.figure.axes if axes.images]
    np.testing.assert_array_equal(images[1].get_array(), drawing.arrays['share'])
    assert len({image.get_clim() for image in images[2:]}) == 1
    assert drawing.figure.get_suptitle().startswith('Added to the tokens: stage 1, after block 0')
    channels = draw('added', model, block=1, channels=(3, 0)).arrays['maps']
    close(channels.reshape(2, -1), added[0][:, [3, 0]].T.numpy())
    assert drawing.arrays['channels'].tolist() == sorted(
        range(8), key=lambda each: -added[0, :, each].std())[:3]


def test_attention_of_references_is_rows_of_the_matrix():
    model = deit(rel_pos_encoding=IRPE)
    expected = naive_weights(model, 1)[0]
    found = draw('attention', model, block=1, head=0).arrays
    assert found['maps'].shape == (4, 5, 4, 5)
    for row, col, r, c in np.ndindex(4, 5, 4, 5):
        close(found['maps'][row, col, r, c], expected[1 + row * 5 + col, 1 + r * 5 + c])


@torch.no_grad()
@pytest.mark.parametrize('mode', ['bias', 'contextual'])
def test_references_by_a_loop(mode):
    model = deit(rel_pos_encoding=dict(IRPE, mode=mode, shared_heads=False))
    attn = model.blocks[2].attn
    found = draw('references', model, block=2, references=3, head=1).arrays
    assert found['cells'][:, :, 0].tolist() == [[0] * 3, [2] * 3, [3] * 3]
    assert found['cells'][0, :, 1].tolist() == [0, 2, 4]
    x = inputs_of(attn, model)[0]
    q = attn.qkv(x).view(1, -1, 3, 2, 8)[0, 1:, 0, 1] / math.sqrt(8)
    table, ids = attn.rel_pos_encoding.table_k[1], bucket_ids('product', (4, 5), ratio=1.9)
    for place, (row, col) in enumerate(found['cells'].reshape(-1, 2).tolist()):
        tile = found['maps'].reshape(9, 4, 5)[place]
        for key, bucket in zip(np.ndindex(4, 5), ids[row * 5 + col].tolist(), strict=True):
            entry = table[..., bucket]
            expected = entry if mode == 'bias' else q[row * 5 + col] @ entry
            close(tile[key], expected.numpy())


@torch.no_grad()
def test_similarity_is_the_cosine_of_what_is_added():
    learned = dict(type='mmposenc.LearnedPositionEmbedding')
    model = deit(pos_encoding=[learned, dict(type='mmposenc.PEG')],
                 rel_pos_encoding=dict(IRPE, mode='bias', shared_heads=False))
    table = model.pos_encodings.at['before'][0].pos_embed[0, 1:].double().numpy()
    peg = model.pos_encodings.at['after0'][0]
    tokens = inputs_of(peg, model)[0][:, 1:]
    added = peg.proj(tokens.transpose(1, 2).view(1, 16, 4, 5))[0].flatten(1).T.double().numpy()
    bias = model.blocks[0].attn.rel_pos_encoding.bias_map((4, 5))[0, :, 1:, 1:]
    rows = bias.transpose(0, 1).flatten(1).double().numpy()
    for block, vectors in enumerate((table, added, rows)):
        found = draw('similarity', model, block=block).arrays['maps']
        lengths = np.sqrt((vectors ** 2).sum(1))
        cosines = vectors @ vectors.T / (lengths[:, None] * lengths)
        close(found, cosines.reshape(4, 5, 4, 5), 1e-5)
    few = draw('similarity', model, references=2).arrays
    np.testing.assert_array_equal(few['cells'][0], [(1, 1), (1, 3)])


@pytest.mark.parametrize('on', ['k', 'qkv'])
def test_cost_is_what_the_model_is_counted_with(on):
    """At the sides that are whole grids; by pairs as the release computes its values."""
    encoding = dict(IRPE, rpe_on=on)
    model, plain = deit(rel_pos_encoding=encoding), deit()
    found = draw('cost', model, (32, 40)).arrays
    assert found['scales'][[1, 3]].tolist() == [1, 2]
    for place in (1, 3):
        size = tuple(int(side * found['scales'][place]) for side in (32, 40))
        assert found['buckets'][place] == count_macs(model, size) - count_macs(plain, size)
        length = 1 + size[0] * size[1] // 64
        assert found['pairs'][place] == 3 * len(on) * length ** 2 * 16


def test_similarity_of_a_zero_vector_is_zero():
    found = cosine_similarity(np.array([[3.0, 0.0], [0.0, 0.0], [3.0, 3.0]]))
    np.testing.assert_allclose(found, [[1, 0, 0.5 ** 0.5], [0, 0, 0], [0.5 ** 0.5, 0, 1]])


BIAS = dict(rel_pos_encoding=dict(IRPE, mode='bias', shared_heads=False))
WITH_PEG = dict(pos_encoding=dict(type='mmposenc.PEG'))
ROTARY = dict(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding'))


@pytest.mark.parametrize('name, options, choice, said', [
    ('matrix', {}, dict(block=3), 'block=3 must be from 0 to 2'),
    ('matrix', {}, dict(block=-1), 'block=-1 must be from 0 to 2'),
    ('bias', BIAS, dict(head=2), 'head=2 must be from 0 to 1'),
    ('similarity', WITH_PEG, dict(block=5), 'block=5 must be from 0 to 0, .*0 pos_encodings.at'),
    ('kernels', {}, {}, 'the model has no PEGs'),
    ('buckets', {}, {}, 'blocks.0.attn has no relative encoding'),
    ('index', dict(rel_pos_encoding=dict(type='mmposenc.SASARPE')), {}, 'has SASARPE, which has'),
    ('references', {}, {}, r'block.0 \(blocks.0.attn\) has no relative encoding that adds'),
    ('references', dict(rel_pos_encoding=dict(IRPE, rpe_on='v')), {}, 'has no relative encoding'),
    ('references', BIAS, dict(references=0), 'references=0 must be'),
    ('bias', ROTARY, dict(block=1), r'block.1 \(blocks.1.attn\) has no relative encoding'),
    ('rotary', {}, {}, r'block.0 \(blocks.0.attn\) has no RotaryEmbedding'),
    ('similarity', {}, {}, 'the model has no encodings that add to tokens or logits'),
    ('cost', BIAS, {}, 'the model has no IRPE with mode.*contextual'),
    ('sizes', {}, {}, 'the model has no ContextPool that predicts sizes'),
    ('pools', {}, {}, 'the model has no ContextPool that predicts weights'),
    ('added', {}, {}, 'the model has no token encodings that keep'),
    ('added', WITH_PEG, dict(channels=(16,)), r'channels=\[16\] must be from 0 to 15'),
    ('overlay', {}, dict(size=(33, 40)), r'size=\(33, 40\) must be whole cells'),
    ('rollout', {}, dict(places=((1.5, 0.0),)), r'at=\(1.5, 0.0\) must be two fractions'),
    ('rollout', dict(pos_encoding=dict(type='mmposenc.PEG', padding='none')), {},
     r'blocks.1.attn runs on \(2, 3\) cells and blocks.0'),
    ('rollout', lambda: swin(1), {}, 'stages.0.blocks.0.attn.w_msa attends in windows'),
    ('rollout', pvt, {}, 'reduced keys'),
    ('rollout', lambda: nn.Conv2d(3, 3, 1), {}, 'no attention layers'),
    ('sizes of nothing', {}, {}, 'figure=.* must be one of matrix, attention')])
def test_what_can_not_be_drawn_is_named(name, options, choice, said):
    """A choice that is wrong has '=' behind its name; all else is what a model has not."""
    size = choice.get('size', (32, 40))
    model = deit(**options) if isinstance(options, dict) else options()
    shown = subject(model, size)
    shown.size = size
    with pytest.raises(ValueError, match=said) as error:
        draw_figure(name, [shown], Choice(**{key: each for key, each in choice.items()
                                             if key != 'size'}))
    assert isinstance(error.value, NothingToShow) == ('=' not in said)
