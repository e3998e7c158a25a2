"""Relative encodings against their papers' formulas, a pair of tokens at a time (iRPE, the rotary
ones and sums have files of their own); the released ones' goldens; what they refuse."""
import math

import pytest
import torch
from golden import assert_released, load_golden
from relative_checks import (
    GRIDS,
    cells,
    check_logits,
    clip,
    clipped_row,
    positions,
    random_inputs,
    sequence_positions,
)

from mmposenc.backbones import ViT
from mmposenc.encodings import (
    CRPE,
    FIRE,
    KERPLE,
    SASARPE,
    ALiBi2D,
    CoPE,
    DecomposedRPE,
    DynamicPositionBias,
    HuangRPE,
    LePE,
    LogSpacedCPB,
    LookHere,
    OffsetBiasEncoding,
    QueryAbsolute1D,
    QueryRelative1D,
    QueryRelative2D,
    RelativePositionBias,
    ShawRPE,
    TransformerXLRPE,
    UndirectedPositionBias,
)
from mmposenc.functional import as_grid, key_grid
from mmposenc.functional.bias_tables import RESIZINGS, resize_bias_table

#: Sizes at which small grids reach beyond the tables, where that is allowed.
SIZES = {ShawRPE: dict(max_offset=2), HuangRPE: dict(max_offset=2),
         SASARPE: dict(max_offset=(1, 3)), QueryRelative1D: dict(max_tokens=30),
         QueryRelative2D: dict(max_size=(5, 6)), QueryAbsolute1D: dict(max_tokens=26),
         DecomposedRPE: dict(grid_shape=(3, 5)),
         LogSpacedCPB: dict(hidden_dims=5), RelativePositionBias: dict(window_size=(5, 6)),
         FIRE: dict(hidden_dims=5, init_length=4.0), CoPE: dict(max_positions=4),
         LookHere: dict(num_heads=12),
         UndirectedPositionBias: dict(window_size=(5, 6)),
         DynamicPositionBias: dict(head_dims=4, pos_dims=6), LePE: dict(kernel_size=5),
         CRPE: dict(windows={3: 1, 5: 1})}


def build(cls, *, num_prefix_tokens=1, **options):
    """Two heads of four channels."""
    sizes = dict(num_heads=2) if issubclass(cls, OffsetBiasEncoding) else dict(head_dims=4,
                                                                               num_heads=2)
    sizes = {**sizes, **SIZES.get(cls, {}), 'num_prefix_tokens': num_prefix_tokens}
    encoding = cls(**{**sizes, **options})
    encoding.head_dims = 4  # for the checks
    return encoding


def of(table, head):
    """The table of a head; without the dimension heads share it."""
    return table if table.dim() == 2 else table[head]


def by_offset(encoding, grids, of_cells, of_prefix=lambda head, kind: 0.0):
    """A formula of query minus key of each axis. Kinds: prefix to cell, cell to prefix, both."""
    queries, keys = positions(*grids, encoding.num_prefix_tokens)

    def pair(q, k, head, i, j):
        if queries[i] is None or keys[j] is None:
            return of_prefix(head, 2 if queries[i] is keys[j] else int(queries[i] is not None))
        return of_cells(q, k, head, [a - b for a, b in zip(queries[i], keys[j], strict=True)])
    return pair


def shaw(encoding, grids):
    return lambda q, k, head, i, j: q @ of(encoding.key_table, head)[
        clipped_row(encoding, *grids, i, j)]


def huang(encoding, grids):
    """((q + a) . (k + a) - a . a - q . k) / sqrt(d); the paper's queries are not scaled."""
    def pair(q, k, head, i, j):
        q, a = q * 2.0, of(encoding.table, head)[clipped_row(encoding, *grids, i, j)]
        return ((q + a) @ (k + a) - a @ a - q @ k) / 2.0
    return pair


def sasa(encoding, grids):
    def of_cells(q, k, head, offset):
        return q @ torch.cat([
            of(table, head)[clip(-d, limit) + limit] for table, d, limit in zip(
                (encoding.row_table, encoding.col_table), offset, encoding.limits, strict=True)])
    return by_offset(encoding, grids, of_cells)


def relative_1d(encoding, grids):
    queries, keys = sequence_positions(*grids, encoding.num_prefix_tokens)
    return lambda q, k, head, i, j: q @ of(encoding.table, head)[keys[j] - queries[i] + 29]


def relative_2d(encoding, grids):
    return by_offset(encoding, grids, lambda q, k, head, offset: q @ (
        of(encoding.row_table, head)[round(-offset[0]) + 4]
        + of(encoding.col_table, head)[round(-offset[1]) + 5]))


def absolute_1d(encoding, grids):
    return lambda q, k, head, i, j: q @ of(encoding.table, head)[j]


def sincos(offset, width):
    angles = [offset / 10000 ** (2 * t / width) for t in range(width // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


def transformer_xl(encoding, grids):
    """Terms (b), (c) and (d); q comes scaled."""
    scale, u, v = 4 ** -0.5, encoding.content_bias, encoding.position_bias

    def term(q, k, head, encoded):
        r = encoding.pos_proj.weight @ torch.tensor(encoded, dtype=q.dtype)
        r = r[head * 4:head * 4 + 4]
        return q @ r + u[head] @ k * scale + v[head] @ r * scale

    if encoding.method == 'sequence':
        queries, keys = sequence_positions(*grids, encoding.num_prefix_tokens)
        return lambda q, k, head, i, j: term(q, k, head, sincos(queries[i] - keys[j], 8))
    cells = by_offset(encoding, grids, lambda q, k, head, offset: term(
        q, k, head, sincos(offset[0], 4) + sincos(offset[1], 4)), lambda head, kind: None)

    def pair(q, k, head, i, j):
        found = cells(q, k, head, i, j)
        return u[head] @ k * scale if found is None else found
    return pair


def bias_table(encoding, grids):
    height, width = (5, 6) if encoding.resize is None else grids[0]
    table = encoding.relative_position_bias_table.t().reshape(2, 9, 11)
    if encoding.resize is not None:
        table = resize_bias_table(table, grids[0], encoding.resize)
    return by_offset(encoding, grids, lambda q, k, head, offset: table[
        head, round(offset[0]) + height - 1, round(offset[1]) + width - 1],
        lambda head, kind: encoding.prefix_bias[head, kind])


def undirected(encoding, grids):
    table = encoding.attention_biases.view(2, 5, 6)
    if encoding.resize is not None:
        table = torch.nn.functional.interpolate(
            table[None], grids[0], mode='bicubic', antialias='anti' in encoding.resize)[0]
    return by_offset(encoding, grids, lambda q, k, head, offset: table[
        head, round(abs(offset[0])), round(abs(offset[1]))],
        lambda head, kind: encoding.prefix_bias[head, kind])


def dynamic(encoding, grids):
    def of_cells(q, k, head, offset):
        x = encoding.pos_proj(torch.tensor(offset, dtype=q.dtype))
        for layers in (encoding.pos1, encoding.pos2):
            x = layers(x.clone()) + (x if encoding.residual else 0)
        return encoding.pos3(x)[head]
    return by_offset(encoding, grids, of_cells, lambda head, kind: encoding.prefix_bias[head, kind])


def log_cpb(encoding, grids):
    plain, unit = encoding.mode == 'cr', encoding.window_size or grids[0]

    def coordinate(offset, length):
        if plain:
            return math.copysign(math.log(1 + abs(offset)), offset)
        x = offset / max(length - 1, 1) * 8
        return math.copysign(math.log2(1 + abs(x)) / math.log2(8), x)

    def of_cells(q, k, head, offset):
        x = [coordinate(*each) for each in zip(offset, unit, strict=True)]
        out = encoding.cpb_mlp(torch.tensor(x, dtype=q.dtype))[head]
        return out if plain else 16 * torch.sigmoid(out)
    return by_offset(encoding, grids, of_cells, lambda head, kind: encoding.prefix_bias[head, kind])


def by_distance(encoding, grids, of_distance):
    prefix = getattr(encoding, 'prefix_bias', None)
    return by_offset(
        encoding, grids, lambda q, k, head, offset: of_distance(head, math.hypot(*offset)),
        lambda head, kind: 0.0 if prefix is None else prefix[head, kind])


def fire(encoding, grids):
    distances = [math.dist(a, b) for a in positions(*grids, 0)[0] for b in positions(*grids, 0)[1]]
    most = max(*distances, abs(float(encoding.length_factor)) * 4.0)

    def psi(x):
        return math.log(1 + abs(float(encoding.c) * x))
    return by_distance(encoding, grids, lambda head, d: encoding.mlp(torch.tensor(
        [psi(d) / (psi(most) + 1e-6)], dtype=torch.float64))[head])


def alibi(encoding, grids):
    """Published slopes: 2 heads have 2^-4 and 2^-8; 6 have those of 4, then two of those of 8."""
    slopes = {2: (4, 8), 6: (2, 4, 6, 8, 1, 3)}[encoding.num_heads]
    return by_distance(encoding, grids, lambda head, d: -d * 2.0 ** -slopes[head])


def kerple(encoding, grids):
    r1, r2 = (x.exp() for x in (encoding.r1, encoding.r2))
    if encoding.method == 'log':
        return by_distance(encoding, grids, lambda head, d: -r1[head] * torch.log(1 + r2[head] * d))
    return by_distance(encoding, grids,
                       lambda head, d: -r1[head] * d ** (2 * r2[head] / (1 + r2[head])))


#: Degrees from the right, counter-clockwise, at which the heads of LookHere look.
LOOKS = {180: (90, 270, 180, 0, 45, 135, 315, 225), 90: (90, 270, 180, 0, 135, 45, 225, 315),
         45: (112.5, 247.5, 157.5, 22.5, 67.5, 292.5, 202.5, 337.5)}


def lookhere(encoding, grids):
    angle = next(angle for angle in LOOKS if torch.equal(
        encoding.sides, LookHere(12, field_of_view=angle).sides))
    slopes = [0.5] * 8 + [4.0 ** -n for n in range(1, 5)]

    def of_cells(q, k, head, offset):
        up, right = offset[0], -offset[1]
        away = math.degrees(math.atan2(up, right)) - LOOKS[angle][head] if head < 8 else 0
        if any(offset) and abs((away + 180) % 360 - 180) > angle / 2 + 1e-9:
            return -1e4
        return -slopes[head] * math.hypot(*offset)
    return by_offset(encoding, grids, of_cells)


def cope(encoding, grids):
    """Counts a token at a time: before the query from the key up to the query, else behind it."""
    q_places, k_places = sequence_positions(*grids, encoding.num_prefix_tokens)

    def pair_of(q_all, k_all):
        def pair(b, h, i, j):
            past = k_places[j] <= q_places[i]
            between = [n for n, place in enumerate(k_places) if (place <= q_places[i]) == past
                       and (n >= j if past else n <= j)]
            count = sum(float(torch.sigmoid(q_all[b, h, i] @ k_all[b, h, n])) for n in between)
            count, table = min(count, 3.0), encoding.table if encoding.table.dim() == 3 else (
                encoding.table[h])
            vectors, low = table[0 if past else 1], int(count)
            vector = vectors[low] + (count - low) * (vectors[min(low + 1, 3)] - vectors[low])
            return q_all[b, h, i] * 2.0 @ vector
        return pair
    return pair_of


@pytest.mark.parametrize('options', [dict(shared_heads=True), dict(shared_heads=False)], ids=str)
@pytest.mark.parametrize('number', range(len(GRIDS)))
def test_cope(options, number):
    encoding = build(CoPE, num_prefix_tokens=number % 2, **options)
    check_logits(encoding, cope(encoding, GRIDS[number]), *GRIDS[number])


PER_HEAD = [dict(shared_heads=True), dict(shared_heads=False)]
BY_METHOD = [dict(method=method, **heads) for method in ('product', 'sequence')
             for heads in PER_HEAD]
FORMULAS = {
    ShawRPE: (shaw, BY_METHOD), HuangRPE: (huang, BY_METHOD), SASARPE: (sasa, PER_HEAD),
    QueryRelative1D: (relative_1d, PER_HEAD), QueryRelative2D: (relative_2d, PER_HEAD),
    QueryAbsolute1D: (absolute_1d, PER_HEAD),
    TransformerXLRPE: (transformer_xl, [dict(method='axes'), dict(method='sequence')]),
    RelativePositionBias: (bias_table, [dict(resize=mode) for mode in (None, *RESIZINGS)]),
    UndirectedPositionBias: (undirected, [
        dict(resize=mode) for mode in (None, 'bicubic', 'bicubic_antialias')]),
    DynamicPositionBias: (dynamic, [dict(residual=False), dict(residual=True)]),
    LogSpacedCPB: (log_cpb, [{}, dict(window_size=(3, 8)), dict(mode='cr')]),
    FIRE: (fire, [{}]), ALiBi2D: (alibi, [{}, dict(num_heads=6)]),
    KERPLE: (kerple, [dict(method='log'), dict(method='power')]),
    LookHere: (lookhere, [dict(field_of_view=angle) for angle in LOOKS])}
#: Prefix tokens in turns, so that each class meets every grid with and without them.
CASES = [pytest.param(cls, options, grids, 2 * ((first + second) % 2),
                      id=f'{cls.__name__}-{options}-{grids}',
                      marks=pytest.mark.slow if first and (first + second) % 2 else ())
         for cls, (_, choices) in FORMULAS.items() for first, options in enumerate(choices)
         for second, grids in enumerate(GRIDS)]


@pytest.mark.parametrize('cls, options, grids, prefix', CASES)
def test_logits(cls, options, grids, prefix):
    encoding = build(cls, num_prefix_tokens=prefix, **options)

    def pair_term_of(q, k):
        formula = FORMULAS[cls][0](encoding, grids)
        return lambda b, h, i, j: formula(q[b, h, i], k[b, h, j], h, i, j)

    check_logits(encoding, pair_term_of, *grids)


@pytest.mark.parametrize('options', BY_METHOD, ids=str)
@pytest.mark.parametrize('grids', GRIDS)
def test_shaws_values(options, grids):
    encoding = build(ShawRPE, on_keys=False, on_values=True, **options)
    q, k, _ = random_inputs(encoding, *grids)
    attn = torch.rand(2, 2, q.shape[2], k.shape[2], dtype=q.dtype)
    expected = torch.zeros_like(q)
    for h in range(2):
        for i in range(q.shape[2]):
            for j in range(k.shape[2]):
                vector = of(encoding.value_table, h)[clipped_row(encoding, *grids, i, j)].detach()
                expected[:, h, i] += attn[:, h, i, j, None] * vector
    torch.testing.assert_close(encoding.values(attn, *grids), expected)
    assert encoding.logits(q, k, *grids) is None
    assert build(ShawRPE, **options).values(attn, *grids) is None


@pytest.mark.parametrize('cls', [LePE, CRPE])
@pytest.mark.parametrize('grids', GRIDS)
def test_convolutions_of_values(cls, grids):
    """Padded cells and those of other regions are as zeros; prefix tokens stay out."""
    encoding = build(cls, num_prefix_tokens=2 * (cls is CRPE))
    q, _, v = random_inputs(encoding, *grids)
    p, key = encoding.num_prefix_tokens, key_grid(*grids)
    term, = encoding.terms(as_grid(grids[0]), key)
    padding = torch.rand(2, v.shape[2]) < 0.3
    regions = None if p else torch.randint(2, (1, key.num_cells))
    expected = torch.zeros_like(q)
    for b in range(2):
        for i, (r, c) in enumerate(cells(grids[0])):
            row, col = (min(int((at + 0.5) / stride), side - 1) for at, stride, side in zip(
                (r, c), key[2:4], key.hw, strict=True))
            out = term.bias.clone()
            for dy in range(-2, 3):
                for dx in range(-2, 3):
                    at, own = (row + dy) * key.width + col + dx, row * key.width + col
                    if 0 <= row + dy < key.height and 0 <= col + dx < key.width and not (
                            padding[b, p + at] or regions is not None
                            and regions[0, at] != regions[0, own]):
                        out = out + term.weight[:, 0, dy + 2, dx + 2] * v[b, :, p + at].flatten()
            expected[b, :, p + i] = out.view(2, 4) * (q[b, :, p + i] if cls is CRPE else 1)
    torch.testing.assert_close(term.output(q, v, padding, regions), expected)


@pytest.mark.parametrize(('q_grid', 'k_grid'), [
    ((3, 5), (3, 5)), ((7, 4), (7, 4)), ((1, 9), (1, 9)), ((6, 8), (3, 2)), ((3, 2), (6, 8)),
    ((7, 5), (3, 4))])
@pytest.mark.parametrize('shared_heads', [True, False])
def test_decomposed_is_timms(q_grid, k_grid, shared_heads):
    sam = pytest.importorskip('timm.models.vision_transformer_sam')
    encoding = DecomposedRPE(4, 2, grid_shape=(3, 5), num_prefix_tokens=2,
                             shared_heads=shared_heads)
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    got = encoding.logits(q * 4 ** -0.5, k, q_grid, k_grid)
    assert not got[:, :, :2].any() and not got[..., :2].any()
    for head in range(2):
        tables = [of(table, head) for table in (encoding.row_table, encoding.col_table)]
        expected = sam.get_decomposed_rel_pos_bias(q[:, head, 2:], *tables, q_grid, k_grid)
        torch.testing.assert_close(got[:, head, 2:, 2:], expected, atol=1e-12, rtol=1e-12)


def test_goldens_of_the_article():
    _, data = load_golden('blog_1d_6')
    q, table = data['q'], data['rel_table']
    sizes = (q.shape[-1], q.shape[1])
    absolute = QueryAbsolute1D(*sizes, max_tokens=q.shape[2])
    absolute.load_state_dict({'table': data['abs_table']})
    assert_released(absolute.logits(q, q, (2, 3)), data['abs'])
    # Of a longer table a shorter sequence uses the middle.
    for length, pad in ((q.shape[2], 0), (9, 3)):
        relative = QueryRelative1D(*sizes, max_tokens=length)
        relative.load_state_dict({'table': torch.nn.functional.pad(table, (0, 0, pad, pad))})
        for grid in ((1, 6), (2, 3)):
            assert_released(relative.logits(q, q, grid), data['rel'])


def test_lookheres_slopes_fall_with_depth():
    blocks = ViT(embed_dims=12, num_layers=3, num_heads=12, patch_size=8, img_size=16,
                 rel_pos_encoding=dict(type='LookHere')).blocks
    for block, factor in zip(blocks, (1.5, 1.0, 0.5), strict=True):
        encoding = block.attn.rel_pos_encoding
        torch.testing.assert_close(encoding.slopes, encoding.head_slopes * factor)


def test_one_cell():
    """A grid of one cell has offset 0 on both axes, not 0 / 0."""
    encoding = build(LogSpacedCPB, num_prefix_tokens=0)
    q = torch.zeros(1, 2, 1, 4)
    expected = 16 * torch.sigmoid(encoding.cpb_mlp(torch.zeros(2)))
    torch.testing.assert_close(encoding.logits(q, q, (1, 1)).flatten(), expected)


def test_what_they_start_from():
    assert all(not table.any() for table in build(DecomposedRPE).parameters())
    names = [name for name, _ in build(TransformerXLRPE).position_tables()]
    assert names == ['content_bias', 'position_bias']  # the projection takes weight decay


def test_a_bias_may_leave_prefix_tokens_alone():
    encoding, whole = (build(RelativePositionBias, prefix_bias=each) for each in (False, True))
    assert [name for name, _ in encoding.named_parameters()] == ['relative_position_bias_table']
    whole.relative_position_bias_table.data = encoding.relative_position_bias_table.data
    q = torch.zeros(1, 2, 7, 4)
    logits = encoding.logits(q, q, (2, 3))
    assert not logits[:, :, 0].any() and not logits[:, :, :, 0].any()
    torch.testing.assert_close(logits[:, :, 1:, 1:], whole.logits(q, q, (2, 3))[:, :, 1:, 1:])


@pytest.mark.parametrize('cls, options, message', [
    (ShawRPE, dict(on_keys=False), r'on_keys=False and on_values=False'),
    (SASARPE, dict(head_dims=5), r'head_dims=5 must be even'),
    (SASARPE, dict(max_offset=(1, 2, 3)), r'max_offset=\(1, 2, 3\)'),
    (TransformerXLRPE, dict(head_dims=3), r'head_dims=3 \* num_heads=2 must be a multiple of 4'),
    (LePE, dict(kernel_size=4), r'kernel_size=4 must be odd'),
    (CoPE, dict(max_positions=1), r'max_positions=1 must be >= 2'),
    (CRPE, dict(windows={3: 1}), r'windows=\{3: 1\} must share out num_heads=2'),
    (LogSpacedCPB, dict(window_size=(0, 3)), r'window_size=\(0, 3\)'),
    (LookHere, dict(undirected_heads=13), r'undirected_heads=13 must be at most num_heads=12'),
    (DynamicPositionBias, dict(pos_dims=0), r'pos_dims=0 must be >= 1'),
    (RelativePositionBias, dict(resize='geometric-cubic', window_size=(2, 5)), 'sides must not be'),
])
def test_bad_options(cls, options, message):
    with pytest.raises(ValueError, match=message):
        build(cls, **options)


@pytest.mark.parametrize('cls, grid, message', [
    (QueryAbsolute1D, (5, 6), r'k_grid=\(5, 6\) and num_prefix_tokens=1 make 31 tokens'),
    (QueryRelative1D, (5, 6), r'q_grid=\(5, 6\) and num_prefix_tokens=1 make 31 tokens; '
                              r'the table has max_tokens=30'),
    (QueryRelative2D, (6, 5), r'q_grid=\(6, 5\) must fit into max_size=\(5, 6\)'),
    (UndirectedPositionBias, (6, 5), r'q_grid=\(6, 5\) must fit into window_size=\(5, 6\)'),
    (RelativePositionBias, (6, 5), r'q_grid=\(6, 5\) must fit into window_size=\(5, 6\)')])
def test_grids_beyond_the_tables(cls, grid, message):
    q = torch.zeros(1, 2, 31, 4)
    with pytest.raises(ValueError, match=message):
        build(cls).logits(q, q, grid)
