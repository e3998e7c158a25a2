"""Formulas of relative encodings as their papers write them, a pair of tokens at a time."""
import math

import torch
from helpers.relative_checks import clip, clipped_row, positions, sequence_positions

from mmposenc import encodings
from mmposenc.functional import as_grid, bucket_ids, key_grid
from mmposenc.functional.bias_tables import RESIZINGS, resize_bias_table
from mmposenc.functional.buckets import METHODS

#: Sizes at which small grids reach beyond the tables, where that is allowed.
SIZES = {'ShawRPE': dict(max_offset=2), 'HuangRPE': dict(max_offset=2),
         'SASARPE': dict(max_offset=(1, 3)), 'QueryRelative1D': dict(max_tokens=30),
         'QueryRelative2D': dict(max_size=(5, 6)), 'QueryAbsolute1D': dict(max_tokens=26),
         'DecomposedRPE': dict(grid_shape=(3, 5)),
         'LogSpacedCPB': dict(hidden_dims=5), 'RelativePositionBias': dict(window_size=(5, 6)),
         'FIRE': dict(hidden_dims=5, init_length=4.0), 'CoPE': dict(max_positions=4),
         'LookHere': dict(num_heads=12),
         'UndirectedPositionBias': dict(window_size=(5, 6)),
         'DynamicPositionBias': dict(head_dims=4, pos_dims=6), 'LePE': dict(kernel_size=5),
         'CRPE': dict(windows={3: 1, 5: 1}), 'LieRE': dict(head_dims=8, grid_shape=(4, 3)),
         'ComRoPE': dict(head_dims=8)}


def build(name, *, num_prefix_tokens=1, **options):
    """Two heads of four channels."""
    cls, sizes = getattr(encodings, name), dict(num_heads=2)
    if not issubclass(cls, encodings.OffsetBiasEncoding):
        sizes['head_dims'] = 4
    sizes = {**sizes, **SIZES.get(name, {}), 'num_prefix_tokens': num_prefix_tokens}
    encoding = cls(**{**sizes, **options})
    encoding.head_dims = getattr(encoding, 'head_dims', 4)  # for the checks
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


def of_prefix(encoding):
    """The numbers of pairs with prefix tokens: zero where an encoding has none."""
    bias = getattr(encoding, 'prefix_bias', None)
    return lambda head, kind: 0.0 if bias is None else bias[head, kind]


def shaw(encoding, grids):
    return lambda q, k, head, i, j: q @ of(encoding.key_table, head)[
        clipped_row(encoding, *grids, i, j)]


def shaws_values(encoding, grids):
    return lambda head, i, j: of(encoding.value_table, head)[clipped_row(encoding, *grids, i, j)]


def irpe_entries(encoding, grids, side):
    """Entries (head, i, j) of a pair in the tables of 'q', 'k' or 'v', added up. For 'q' keys look
    at queries. The last bucket is that of pairs with a prefix token."""
    query, key, prefix = as_grid(grids[0]), key_grid(*grids), encoding.num_prefix_tokens
    ids = bucket_ids(encoding.method, *((key, query) if side == 'q' else (query, key)), ratio=1.9)
    tables = list(zip(encoding.tables_of_side(side), ids if isinstance(ids, tuple) else (ids,),
                      strict=True))

    def entry(head, i, j):
        i, j = (j, i) if side == 'q' else (i, j)
        buckets = [encoding.num_buckets if min(i, j) < prefix else each[i - prefix, j - prefix]
                   for _, each in tables]
        own = [table[head % len(table)] for table, _ in tables]
        return sum(table[bucket] if side == 'v' else table[..., bucket]
                   for table, bucket in zip(own, buckets, strict=True))
    return entry


def irpe(encoding, grids):
    """Eqs. 6, 7, 12 and 13; every logit has the scale d ** -0.5, which q comes with."""
    entries = {side: irpe_entries(encoding, grids, side) for side in encoding.rpe_on if side != 'v'}

    def pair(q, k, head, i, j):
        found = [(x, entries[side](head, i, j)) for side, x in (('k', q), ('q', k * 4 ** -0.5))
                 if side in entries]
        return sum(entry if encoding.mode == 'bias' else x @ entry for x, entry in found)
    return pair


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
        of_prefix(encoding))


def undirected(encoding, grids):
    table = encoding.attention_biases.view(2, 5, 6)
    if encoding.resize is not None:
        table = torch.nn.functional.interpolate(
            table[None], grids[0], mode='bicubic', antialias='anti' in encoding.resize)[0]
    return by_offset(encoding, grids, lambda q, k, head, offset: table[
        head, round(abs(offset[0])), round(abs(offset[1]))],
        of_prefix(encoding))


def dynamic(encoding, grids):
    def of_cells(q, k, head, offset):
        x = encoding.pos_proj(torch.tensor(offset, dtype=q.dtype))
        for layers in (encoding.pos1, encoding.pos2):
            x = layers(x.clone()) + (x if encoding.residual else 0)
        return encoding.pos3(x)[head]
    return by_offset(encoding, grids, of_cells, of_prefix(encoding))


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
    return by_offset(encoding, grids, of_cells, of_prefix(encoding))


def by_distance(encoding, grids, of_distance):
    return by_offset(
        encoding, grids, lambda q, k, head, offset: of_distance(head, math.hypot(*offset)),
        of_prefix(encoding))


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
        encoding.sides, build('LookHere', field_of_view=angle).sides))
    slopes = [0.5] * 8 + [4.0 ** -n for n in range(1, 5)]

    def of_cells(q, k, head, offset):
        up, right = offset[0], -offset[1]
        away = math.degrees(math.atan2(up, right)) - LOOKS[angle][head] if head < 8 else 0
        if any(offset) and abs((away + 180) % 360 - 180) > angle / 2 + 1e-9:
            return -1e4
        return -slopes[head] * math.hypot(*offset)
    return by_offset(encoding, grids, of_cells)


def cope(encoding, grids, regions=None):
    """Counts a token at a time: before the query from the key up to the query, else behind it;
    within a region (B, L)."""
    q_places, k_places = sequence_positions(*grids, encoding.num_prefix_tokens)

    def pair_of(q_all, k_all):
        def pair(b, h, i, j):
            past = k_places[j] <= q_places[i]
            between = [n for n, place in enumerate(k_places) if (place <= q_places[i]) == past
                       and (n >= j if past else n <= j)
                       and (regions is None or regions[b, n] == regions[b, i])]
            count = sum(float(torch.sigmoid(q_all[b, h, i] @ k_all[b, h, n])) for n in between)
            count, table = min(count, 3.0), encoding.table if encoding.table.dim() == 3 else (
                encoding.table[h])
            vectors, low = table[0 if past else 1], int(count)
            vector = vectors[low] + (count - low) * (vectors[min(low + 1, 3)] - vectors[low])
            return q_all[b, h, i] * 2.0 @ vector
        return pair
    return pair_of


def by_blocks(encoding, along, skew):
    """exp(r A + c B) of each block; ``skew(block)`` gives A and B."""
    return torch.block_diag(*(torch.linalg.matrix_exp(sum(
        x * each for x, each in zip(along, skew(block), strict=True)))
        for block in range(8 // encoding.block_size)))


def liere(encoding, q_grid):
    """From 0 to 1 along the sides trained on; prefix tokens stay."""
    def matrix(head, token):
        along = (0.0, 0.0) if token is None else [
            x / max(side - 1, 1) * side / trained
            for x, side, trained in zip(token, q_grid, (4, 3), strict=True)]
        upper = encoding.generators[:, head % encoding.generators.shape[1]].triu(1)
        return by_blocks(encoding, along, lambda block: upper[:, block] - upper[:, block].mT)
    return matrix


def comrope(encoding, q_grid):
    """From 0 to 1 along the sides; prefix tokens are in the middle."""
    def matrix(head, token):
        def skew(block):
            whole = encoding.generators[head, block] - encoding.generators[head, block].t()
            factors = (encoding.factors[:, block] if encoding.method == 'ld' else
                       [float(block % 2 == axis) for axis in (0, 1)])
            return [whole * factor for factor in factors]
        along = (0.5, 0.5) if token is None else [
            (x + 0.5) / side for x, side in zip(token, q_grid, strict=True)]
        return by_blocks(encoding, along, skew)
    return matrix


PER_HEAD = [dict(shared_heads=True), dict(shared_heads=False)]
BY_METHOD = [dict(method=method, **heads) for method in ('product', 'sequence')
             for heads in PER_HEAD]
#: Formulas of the output, and options with them.
VALUES = {
    'ShawRPE': (shaws_values, [dict(on_keys=False, on_values=True, **each) for each in BY_METHOD]),
    'IRPE': (lambda encoding, grids: irpe_entries(encoding, grids, 'v'), [
        dict(method=method, rpe_on='v', shared_heads=method == 'cross') for method in METHODS])}
#: Matrices, by head and by the row and column of a token (None: a prefix token), that queries and
#: keys are multiplied by; of the encoding and the query grid.
ROTATIONS = {
    'LieRE': (liere, [dict(block_size=4), dict(block_size=2),
                      dict(block_size=8, shared_heads=True)]),
    'ComRoPE': (comrope, [dict(block_size=4), dict(method='ap', block_size=2)])}
#: Terms of the logits.
FORMULAS = {
    'IRPE': (irpe, [dict(method=method, **options) for method in METHODS for options in (
        dict(rpe_on='qk', shared_heads=False), dict(mode='bias', rpe_on='qk', shared_heads=False),
        dict(rpe_on='k'))]),
    'ShawRPE': (shaw, BY_METHOD), 'HuangRPE': (huang, BY_METHOD), 'SASARPE': (sasa, PER_HEAD),
    'QueryRelative1D': (relative_1d, PER_HEAD), 'QueryRelative2D': (relative_2d, PER_HEAD),
    'QueryAbsolute1D': (absolute_1d, PER_HEAD),
    'TransformerXLRPE': (transformer_xl, [dict(method='axes'), dict(method='sequence')]),
    'RelativePositionBias': (bias_table, [
        dict(prefix_bias=False), *(dict(resize=mode) for mode in (None, *RESIZINGS))]),
    'UndirectedPositionBias': (undirected, [
        dict(resize=mode) for mode in (None, 'bicubic', 'bicubic_antialias')]),
    'DynamicPositionBias': (dynamic, [dict(residual=False), dict(residual=True)]),
    'LogSpacedCPB': (log_cpb, [{}, dict(window_size=(3, 8)), dict(mode='cr')]),
    'FIRE': (fire, [{}]), 'ALiBi2D': (alibi, [{}, dict(num_heads=6)]),
    'KERPLE': (kerple, [dict(method='log'), dict(method='power')]),
    'LookHere': (lookhere, [dict(field_of_view=angle) for angle in LOOKS])}
