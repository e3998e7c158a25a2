"""Rotary embedding against complex numbers in a loop, and its defining property."""
import itertools
import math

import pytest
import torch
from helpers.golden_files import assert_released, load_golden
from helpers.relative_checks import GRIDS, random_inputs

from mmposenc.attention.attend import attend
from mmposenc.backbones import DeiT
from mmposenc.encodings import GTA, RotaryEmbedding
from mmposenc.functional import as_grid, key_grid

#: Options of every kind: RoPE-ViT's two, DINOv3's, EVA-02's, and the rest of the choices.
KINDS = {
    'axial': {},
    'learned': dict(directions='learned'),
    'dinov3': dict(axes='yx', planes='halves', normalize='separate'),
    'eva02': dict(axes='yx', theta=10000.0, reference_grid=(4, 6)),
    'max': dict(normalize='max', periods=(0.5, 90.0)),
    'min': dict(directions='learned', axes='yx', planes='halves', normalize='min',
                round_periods=True),
    **{scaling: dict(scaling=scaling, grid_shape=(3, 2), temperature='yarn', turns=(0.01, 0.2))
       for scaling in ('linear', 'ntk', 'yarn')},
    'log': dict(temperature='log', grid_shape=(3, 2)),
    'entropy': dict(directions='learned', temperature='entropy', grid_shape=(9, 9)),
    'periods in cells': dict(planes='halves', periods=(2.0, 50.0), round_periods=True),
    'moonvit': dict(axes='alternate', theta=10000.0),
    'spiral': dict(directions=4, head_dims=16, axes='yx', reference_grid=(14, 14)),
    'golden': dict(directions='golden', normalize='separate'),
    'hexagonal': dict(directions='hexagonal', first=1.0),
    'no frequency twice': dict(axes='alternate', shared_freqs=False, periods=(1.0, 90.0)),
}


#: Of sequences and of videos.
OTHER_AXES = [dict(dims=dims, head_dims=head_dims, **options)
              for dims, head_dims in ((1, 12), (1, 16), (3, 12), (3, 16))  # 16 leave two that stay
              for options in (dict(), dict(planes='halves'), dict(axes='yx', theta=50.0),
                              dict(axes='alternate', shared_freqs=False))]
GRIDS_OF = {1: [((5,), None), ((5,), (3,))], 2: GRIDS,
            3: [((3, 2, 4), None), ((3, 2, 4), (2, 1, 2))]}


def build(kind='axial', **options):
    return RotaryEmbedding(**{'head_dims': 8, 'num_heads': 2, 'num_prefix_tokens': 1,
                              **KINDS[kind], **options})


def places(grid, dims, num_prefix_tokens):
    """Frame, row and column of each token in units of the query grid, as many as there are axes;
    None for prefix tokens."""
    axes = [[(i + 0.5) * stride - 0.5 for i in range(side)] for side, stride in (
        (grid.frames, grid.stride_t), (grid.height, grid.stride_h), (grid.width, grid.stride_w))]
    return [None] * num_prefix_tokens + [place[3 - dims:] for place in itertools.product(*axes)]


def frequency(encoding, plane, count, side, trained):
    """f of a plane of an axis that has so many, and so many cells where so many were trained."""
    scale, own = max(side / trained, 1), encoding.frequencies
    theta = own.theta
    if own.scaling == 'ntk':  # another base
        return (theta * scale ** (count / (count - 1))) ** (-plane / count)
    if own.scaling == 'yarn':
        low, high = (count * math.log(trained / (turns * 2 * math.pi)) / math.log(theta)
                     for turns in (0.2, 0.01))
        low, high = max(math.floor(low), 0), min(math.ceil(high), 2 * count - 1)
        share = min(max((plane - low) / (high - low), 0), 1)
        return theta ** (-plane / count) * (1 - share + share / scale)
    if own.scaling == 'linear':
        return theta ** (-plane / count) / scale
    if own.periods is None:
        period = own.theta ** (plane / count)
    else:
        low, high = own.periods
        period = low * (high / low) ** (plane / (count - 1))
    if own.round_periods:
        period = float(torch.tensor(period).bfloat16())
    in_turns = own.periods is not None or encoding.positions.normalize is not None
    return (2 * math.pi if in_turns else 1) / period


def coordinates(encoding, place, q_grid):
    """Row and column as this kind counts them."""
    own = encoding.positions
    sides = {'max': [max(q_grid)] * 2, 'min': [min(q_grid)] * 2}.get(own.normalize, q_grid)
    if own.normalize is not None:
        return [2 * (x + 0.5) / side - 1 for x, side in zip(place, sides, strict=True)]
    place = [x + own.first for x in place]
    if own.reference_grid is not None:
        return [x / side * reference for x, side, reference in
                zip(place, q_grid, own.reference_grid, strict=True)]
    return place


def times(x, angles, halves=False):
    """x (..., 2 * planes) as complex numbers times exp(i angle), angles (..., planes)."""
    pairs = x.unflatten(-1, (2, -1)).mT if halves else x.unflatten(-1, (-1, 2))
    turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(
        torch.ones_like(angles), angles)
    turned = torch.view_as_real(turned)
    return (turned.mT if halves else turned).flatten(-2)


#: Axes of the planes, of frame, row and column or as many as there are, by number.
ORDER = {'xy': {1: [0], 2: [1, 0], 3: [0, 2, 1]}, 'yx': {1: [0], 2: [0, 1], 3: [0, 1, 2]},
         'alternate': {1: [0], 2: [1, 0], 3: [0, 1, 2]}}


def angle(encoding, q_grid, head, place, plane):
    """That of one plane of one token; prefix tokens and planes that are left over stay."""
    dims, half = encoding.dims, encoding.head_dims // 2
    order, count = ORDER[encoding.axes][dims], half // dims
    if place is None or encoding.shared_freqs and plane >= count * dims:
        return 0.0
    along = coordinates(encoding, place, q_grid)
    along = [along[axis] for axis in order]
    if encoding.directions != 'axes':
        freqs = encoding.freqs[:, head % encoding.freqs.shape[1], plane].tolist()
        return sum(a * f for a, f in zip(along, freqs, strict=True))
    axis, number = (divmod(plane, count) if encoding.axes != 'alternate' else
                    divmod(plane, dims)[::-1])
    sides = encoding.grid_shape, q_grid[-2:] if dims > 1 else (1, *q_grid)
    trained, side = (each[order[axis] if dims == 2 else 1] for each in sides)
    series = (number, count) if encoding.shared_freqs else (plane, half)
    return along[axis] * frequency(encoding, *series, side, trained)


def turned(encoding, x, tokens, q_grid):
    """x (B, heads, L, head_dims), with the angle of each plane of each token."""
    angles = [[[angle(encoding, q_grid, head, place, plane) for plane in range(x.shape[-1] // 2)]
               for place in tokens] for head in range(x.shape[1])]
    return times(x, torch.tensor(angles, dtype=x.dtype), encoding.planes == 'halves')


def sharpness(encoding, query, key):
    """What the logits are multiplied by, with n keys instead of m."""
    if encoding.temperature is None:
        return 1
    height, width = encoding.grid_shape
    share = key.num_cells / query.num_cells
    n, m = query.num_cells * share, height * width * share
    if encoding.temperature == 'yarn':
        return (0.1 * math.log(max((n / m) ** 0.5, 1)) + 1) ** 2
    return 1 if m <= 1 else (math.log(n) / math.log(m)) ** (
        1 if encoding.temperature == 'log' else 0.5)


def test_yarn_blends_from_1_to_32_turns():
    """alpha and beta of YaRN (Peng et al. 2023, section 3.2)."""
    q, own, paper = torch.randn(1, 2, 400, 64), *(
        build(dims=1, head_dims=64, num_prefix_tokens=0, scaling='yarn', grid_shape=(270,), **turns)
        for turns in ({}, dict(turns=(1.0, 32.0))))
    assert torch.equal(own.rotate(q, q, (400,))[0], paper.rotate(q, q, (400,))[0])


@pytest.mark.parametrize('options, q_grid, k_grid, prefix', [
    (options, *grids, 2 * ((row + column) % 2))
    for row, options in enumerate([*KINDS.values(), *OTHER_AXES])
    for column, grids in enumerate(GRIDS_OF[options.get('dims', 2)])])
def test_rotate(options, q_grid, k_grid, prefix):
    dims = options.get('dims', 2)
    encoding = build(num_prefix_tokens=prefix, **options)
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    query, key = as_grid(q_grid, any_axes=True), key_grid(q_grid, k_grid)
    got_q, got_k = encoding.rotate(q, k, q_grid, k_grid)
    torch.testing.assert_close(got_q, turned(encoding, q, places(query, dims, prefix), q_grid)
                               * sharpness(encoding, query, key))
    torch.testing.assert_close(got_k, turned(encoding, k, places(key, dims, prefix), q_grid))
    assert not encoding.terms(query, key)


@pytest.mark.parametrize('options', [
    {}, dict(axes='yx', planes='halves', normalize='separate'),
    dict(axes='alternate', shared_freqs=False, theta=9.0),
    dict(scaling='ntk', grid_shape=(2, 2), first=1.0)])
def test_registers_turn_on_a_grid_of_their_own(options):
    """Behind a class token, which stays, by a theta of their own and in cells."""
    encoding = build(num_prefix_tokens=7, register_grid=(2, 3), register_theta=30.0, **options)
    plain = {key: options[key] for key in options if key in ('axes', 'planes', 'shared_freqs')}
    registers = build(num_prefix_tokens=0, theta=30.0, **plain)
    cells = build(num_prefix_tokens=0, **options)
    both = random_inputs(encoding, (3, 4), None)[:2]
    for x, got in zip(both, encoding.rotate(*both, (3, 4)), strict=True):
        assert torch.equal(got[:, :, 0], x[:, :, 0])
        torch.testing.assert_close(got[:, :, 1:7], turned(
            registers, x[:, :, 1:7], places(as_grid((2, 3)), 2, 0), (2, 3)))
        torch.testing.assert_close(got[:, :, 7:], cells.rotate(*[x[:, :, 7:]] * 2, (3, 4))[0])


@pytest.mark.parametrize('q_grid, k_grid', GRIDS)
def test_gta(q_grid, k_grid):
    """A value at a time, turned by its offset from the query."""
    encoding = GTA(8, 2, num_prefix_tokens=1)
    q, k, v = random_inputs(encoding, q_grid, k_grid)
    out, weights = attend(q, k, v, encoding, q_grid, k_grid, need_weights=True)
    angles = [torch.tensor([[
        2 * math.pi * (place or (0, 0))[plane // 2] / q_grid[plane // 2] / 2 ** (plane % 2)
        for plane in range(4)] for place in places(grid, 2, 1)], dtype=q.dtype)
        for grid in (as_grid(q_grid), key_grid(q_grid, k_grid))]
    expected, plain = torch.zeros_like(out), torch.zeros_like(weights)
    for i in range(out.shape[2]):
        turn = angles[1] - angles[0][i]
        plain[..., i, :] = (q[..., i, None, :] * times(k, turn)).sum(-1) * 8 ** -0.5
        expected[..., i, :] = (weights[..., i, :, None] * times(v, turn)).sum(-2)
    torch.testing.assert_close(weights, plain.softmax(-1))
    torch.testing.assert_close(out, expected)


#: Options that are those of a release, by the name of its arrays in rotary_directions.npz.
RELEASED = {
    'spiral 2 own': dict(directions=4, shared_freqs=False, theta=10000.0),
    'spiral 2 shared': dict(directions=4, reference_grid=(14, 14), theta=10000.0),
    'spiral 4 own': dict(directions=8, shared_freqs=False,  # from 1.5 radians a cell
                         periods=(2 * math.pi / 1.5, 2 * math.pi / 1.5 * 10000.0 ** (30 / 32))),
    'golden': dict(directions='golden', planes='halves', periods=(2 * math.pi, 200 * math.pi))}


@pytest.mark.parametrize('name', RELEASED)
def test_directions_are_those_of_the_releases(name):
    """Spiral RoPE's, with its clamped corners; and without, the logits of cells that lie in the
    circle of the grid. vit-pytorch's golden directions."""
    released = load_golden('rotary_directions')[1]
    x, expected = released[f'{name}.x'], released[f'{name}.y']
    if name == 'golden':
        encoding = RotaryEmbedding(16, 3, axes='yx', **RELEASED[name])
        return assert_released(encoding.rotate(x, x, (4, 5))[0], expected)
    x, expected = x.transpose(1, 2), expected.transpose(1, 2)
    side, middle = math.isqrt(x.shape[2]), (math.isqrt(x.shape[2]) - 1) / 2
    clamped, free = (RotaryEmbedding(x.shape[-1], 1, axes='yx', clamp=clamp, **RELEASED[name])
                     for clamp in (True, False))
    assert not clamped.cellwise and free.cellwise == (name != 'spiral 2 shared')
    assert_released(clamped.rotate(x, x, (side, side))[0], expected)
    inside = torch.tensor([math.dist(cell, (middle, middle)) <= middle
                           for cell in itertools.product(range(side), repeat=2)])
    turned = free.rotate(x, x, (side, side))[0]
    got, want = ((y @ y.mT)[..., inside, :][..., inside] for y in (turned, expected))
    assert_released(got, want)
    corners = ((turned @ turned.mT) - (expected @ expected.mT)).abs().amax((0, 1, 2)) > 0.1
    assert corners.any()


@pytest.mark.parametrize('height, width, clamped', [(14, 14, 20), (4, 10, None)])
def test_corners_beyond_the_last_row_or_column_of_a_turned_grid(height, width, clamped):
    """20 of 14 x 14 along a diagonal; keys on a coarser grid are clamped where queries are, those
    next to the rows by the rows."""
    encoding = RotaryEmbedding(16, 1, directions=4, axes='yx', clamp=True).double()
    half = ((height - 1) / 2, (width - 1) / 2)
    if clamped:
        cells = itertools.product(range(height), range(width))
        assert sum(abs(r - half[0] + c - half[1]) > half[0] * 2 ** 0.5 for r, c in cells) == clamped
    keys = list(itertools.product(range(height // 2), range(width // 2)))
    k = torch.randn(1, 1, len(keys), 16, dtype=torch.float64)
    found = encoding.rotate(k.new_zeros(1, 1, height * width, 16), k, (height, width),
                            (height // 2, width // 2))[1]
    for (number, (r, c)), plane in itertools.product(enumerate(keys), (2, 6)):
        u, most = [2 * r + 0.5 - half[0], 2 * c + 0.5 - half[1]], half[plane // 4]
        u = (u[0] + u[1] if plane == 2 else u[1] - u[0]) / 2 ** 0.5
        angles = k.new_tensor([(max(-most, min(most, u)) + most) * 100.0 ** (-(plane % 4 - 2) / 2)])
        at = (..., number, slice(2 * plane, 2 * plane + 2))
        torch.testing.assert_close(found[at], times(k[at], angles))


def test_interleaved_mrope_is_timms():
    timm = pytest.importorskip('timm.layers.pos_embed_sincos')
    embedding = timm.RotaryEmbeddingMRope(32, mrope_section=(8, 12, 12))
    x = torch.randn(2, 3, 20, 32)
    expected = timm.apply_rot_embed_cat(x, embedding.get_embed([4, 5]), half=True)
    encoding = RotaryEmbedding(32, 3, dims=3, axes='alternate', planes='halves', shared_freqs=False)
    torch.testing.assert_close(encoding.rotate(x, x, (4, 5))[0], expected)


@pytest.mark.parametrize('alternate', [False, True])
def test_three_directions_120_degrees_apart(alternate):
    """One of the 16 planes of a head is left over and stays."""
    freqs = RotaryEmbedding(32, 2, directions='hexagonal', theta=50.0,
                            axes='alternate' if alternate else 'xy').freqs
    assert freqs.shape == (2, 1, 16) and not freqs[:, 0, 15].any()
    for way, number in itertools.product(range(3), range(5)):
        angle, f = way * 2 * math.pi / 3, 50.0 ** (-number / 5)
        plane = number * 3 + way if alternate else way * 5 + number
        torch.testing.assert_close(freqs[:, 0, plane], torch.tensor(
            [math.cos(angle) * f, math.sin(angle) * f]))


def test_learned_frequencies_start_as_two_perpendicular_axes():
    freqs = RotaryEmbedding(16, 3, directions='learned').freqs
    assert freqs.shape == (2, 3, 8)
    magnitude = 10.0 ** (-torch.arange(0, 16, 4) / 16)
    torch.testing.assert_close(freqs.norm(dim=0), magnitude.repeat(2).expand(3, -1))
    first, second = freqs.split(4, dim=2)
    torch.testing.assert_close((first * second).sum(0), torch.zeros(3, 4), atol=1e-6, rtol=0)


@pytest.mark.parametrize('head_dims', [64, 128])
def test_rounded_periods_are_those_of_dinov3s_files(head_dims):
    """The release computes base ** (2 i / (head_dims / 2)) in bfloat16 throughout."""
    encoding = RotaryEmbedding(head_dims, 1, normalize='separate', round_periods=True)
    count = torch.arange(head_dims // 4, dtype=torch.bfloat16)
    periods = 100.0 ** (2 * count / (head_dims // 2))
    got = encoding.axis_periods()
    torch.testing.assert_close(got, periods.double(), rtol=1e-12, atol=0)


def test_augmentation_is_that_of_the_release():
    """Shift, jitter and rescale as DINOv3 draws and applies them (rows first), for queries and keys
    alike; drawn by every call, and only while training."""
    options = dict(axes='yx', planes='halves', normalize='separate')
    encoding = RotaryEmbedding(8, 1, shift=0.3, jitter=1.4, rescale=2.0, **options)
    plain = RotaryEmbedding(8, 1, **options)
    x = torch.randn(1, 1, 6, 8)
    torch.manual_seed(3)
    got, keys = encoding.rotate(x, x, (2, 3))
    again, _ = encoding.rotate(x, x, (2, 3))
    torch.testing.assert_close(got, keys)
    assert not torch.allclose(got, again)
    torch.manual_seed(3)
    shift = torch.empty(2).uniform_(-0.3, 0.3)
    jitter = torch.empty(2).uniform_(-math.log(1.4), math.log(1.4)).exp()
    rescale = torch.empty(1).uniform_(-math.log(2.0), math.log(2.0)).exp()
    cells = torch.tensor([[2 * (row + 0.5) / 2 - 1, 2 * (col + 0.5) / 3 - 1]
                          for row in range(2) for col in range(3)])
    cells = (cells + shift) * jitter * rescale
    freqs = 2 * math.pi * 100.0 ** -(torch.arange(2) / 2)
    expected = times(x, (cells[:, :, None] * freqs).flatten(1), halves=True)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(encoding.eval().rotate(x, x, (2, 3)), plain.rotate(x, x, (2, 3)))


def test_blocks_that_are_run_again_draw_the_same():
    grads = []
    for with_cp in (False, True):
        torch.manual_seed(0)
        model = DeiT(embed_dims=16, num_layers=2, num_heads=2, patch_size=8, with_cp=with_cp,
                     rel_pos_encoding=dict(type='RotaryEmbedding', shift=0.5, rescale=2.0))
        torch.manual_seed(1)
        model(torch.ones(1, 3, 16, 24).cumsum(3))[0].square().sum().backward()
        grads.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*grads, rtol=0, atol=0)


@pytest.mark.parametrize('kind', ['axial', 'learned', 'hexagonal'])
def test_half_precision_angles_far_from_the_origin(kind):
    """Angles are computed in float32: at column 200 a bfloat16 angle would be off by 0.5."""
    encoding = build(kind, num_prefix_tokens=0)
    q, k, _ = random_inputs(encoding, (1, 201), None, batch=1, dtype=torch.float32)
    expected, _ = encoding.rotate(q, k, (1, 201))
    got, _ = encoding.rotate(q.bfloat16(), k.bfloat16(), (1, 201))
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), expected, atol=5e-2, rtol=2e-2)
