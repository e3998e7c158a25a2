"""Every engine against the definition: every encoding, with dropout, padding, prefix tokens, keys
on another grid and autocast, forward and all gradients."""
import itertools
import zlib
from unittest import mock

import examples
import pytest
import torch
from helpers import relative_checks
from helpers.relative_checks import (
    CHUNKS,
    attend,
    chunks_of,
    close,
    random_inputs,
    results,
    some_padding,
    terms_of,
)

from mmposenc.attention import terms
from mmposenc.attention.compute import IMPLEMENTATIONS
from mmposenc.attention.fast import chunked, sdpa, term_writers
from mmposenc.attention.fast.dropout import DropoutFactors
from mmposenc.attention.fast.layout import chunk_groups
from mmposenc.encodings import RelativeEncoding
from mmposenc.functional import Grid

GRIDS = [((3, 5), None), ((1, 6), None), ((5, 1), None), ((4, 6), Grid(2, 3, 2.0, 2.0)),
         ((4, 6), Grid(3, 2, 4 / 3, 3.0))]


def in_turns(*others, period=2):
    """Every encoding with all of the other arguments; in the short suite each ``period``-th case.

    Where an encoding begins follows from its name alone, so that a new encoding does not change
    which cases of the others run. With a longer period than there are arguments, some run in none.
    """
    return [pytest.param(name, *other, marks=(
                () if (zlib.crc32(name.encode()) - column) % period == 0 else pytest.mark.slow))
            for name in examples.RELATIVE for column, other in enumerate(others)]


@pytest.mark.parametrize('name, grids, prefix, num_heads', in_turns(
    *((grids, prefix, 2) for grids in GRIDS for prefix in (0, 2)),
    # As in PVT's first stage; on a square grid a mixed-up axis would be no error.
    (((4, 4), None), 0, 1), (((4, 6), Grid(2, 3, 2.0, 2.0)), 0, 1), period=8))
def test_chunks(name, grids, prefix, num_heads):
    relative_checks.check_implementations(examples.relative(
        name, grids[0], num_heads=num_heads, num_prefix_tokens=prefix), *grids)


def dropped(encoding, inputs, grids, mask, seed=3):
    """Output and gradients of chunks with dropout, and the weights they kept."""
    calls = []
    original = chunked.planned_call
    with mock.patch.object(chunked, 'planned_call',
                           lambda problem: calls.append(original(problem)) or calls[0]):
        torch.manual_seed(seed)
        found = results(encoding, inputs, *grids, key_padding_mask=mask, implementation='chunked',
                        dropout_p=0.3)
    return found, kept_pairs(calls[0], *inputs[0].shape[:2])


def kept_pairs(call, num_images, num_heads):
    """Which of all pairs the dropout of a call keeps: zeros and ones (B, heads, Lq, Lk)."""
    drop, layout = call.dropout.start(), call.layout
    out = torch.empty(num_images, num_heads, layout.len_q, layout.len_k)
    for _, parts in chunk_groups(num_images, num_heads, layout):
        for chunk in parts:
            shape = (chunk.size, chunk.num_queries, layout.len_k)
            drawn = chunk.by_image(drop.draw(torch.empty(shape)))
            out[chunk.images, chunk.heads, chunk.queries] = drawn
    return out


@pytest.mark.parametrize('prefix', [0, 1])
@pytest.mark.parametrize('name', ['IRPE product qkv', 'IRPE cross k', 'ShawRPE with values',
                                  'HuangRPE',
                                  'SASARPE', 'RelativePositionBias', 'QueryRelative1D',
                                  'TransformerXLRPE', 'CombinedRPE'])
def test_dropout_equals_the_definition_under_the_same_mask(name, prefix):
    grids = ((3, 5), None)
    encoding = examples.relative(name, grids[0], num_prefix_tokens=prefix)
    inputs = random_inputs(encoding, *grids)
    for mask in (None, some_padding(encoding, inputs[1], *grids))[:1 + encoding.cellwise]:
        for options in CHUNKS:
            with chunks_of(**options):
                found, kept = dropped(encoding, inputs, grids, mask)
            factors = kept.double() * DropoutFactors(0.3, torch.device('cpu'), 0).scale
            with mock.patch.object(
                    torch.nn.functional, 'dropout', lambda x, p, by=factors: x * by), (
                    mock.patch('mmposenc.attention.compute.use_sdpa', lambda *args: False)):
                expected = results(encoding, inputs, *grids, key_padding_mask=mask,
                                   implementation='reference', dropout_p=0.3)
            close(found, expected)


def test_dropout_has_its_rate_and_follows_the_seed():
    """0.1 is 6554 / 2 ** 16. There is no pattern in rows, columns or neighbours."""
    def drawn(rate, seed, *shape):
        return DropoutFactors(rate, torch.device('cpu'), seed).start().draw(torch.empty(shape))

    rate, ones = 6554 / 2 ** 16, drawn(0.1, 5, 1000, 1001)
    assert set(ones.unique().tolist()) == {0.0, 1.0}
    assert abs(float(ones.mean()) - (1 - rate)) < 5 * (0.09 / ones.numel()) ** 0.5
    assert DropoutFactors(0.1, torch.device('cpu'), seed=5).scale == 1 / (1 - rate)
    assert (ones.mean(0) - ones.mean()).abs().max() < 6 * (0.09 / 1000) ** 0.5
    assert abs(float((ones[:, 1:] * ones[:, :-1]).mean()) - float(ones.mean()) ** 2) < 1e-3
    assert torch.equal(drawn(0.1, 5, 1000, 1001), ones)
    assert drawn(0.0, 0, 9).all() and not drawn(1.0, 0, 9).any()
    q = torch.randn(1, 2, 30, 4)
    one_region = torch.zeros(1, 30, dtype=torch.long)
    for how, regions in itertools.product(('chunked', 'sdpa', 'reference'), (None, one_region)):
        outs = []
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            outs.append(attend(q, q, q, implementation=how, dropout_p=0.5, regions=regions)[0])
        assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])


@pytest.mark.parametrize('name, how, dropout', [
    (None, 'chunked', 0.1), ('IRPE product qkv', 'chunked', 0.0),
    *(('PaPE', how, 0.0) for how in ('auto', 'sdpa', 'chunked'))])
def test_nothing_is_as_large_as_all_pairs(name, how, dropout):
    """Neither saved for the backward pass, nor allocated."""
    encoding = name and examples.relative(name, (20, 30), head_dims=8)
    q, k, v = torch.randn(3, 1, 2, 600, 8).requires_grad_().unbind()
    with chunks_of(20_000, long=True, keep=False), relative_checks.LargestStorage() as largest:
        attend(q, k, v, encoding, (20, 30), implementation=how,
               dropout_p=dropout)[0].sum().backward()
    assert 0 < largest.bytes < 2 * 600 * 600 * 4 / 5


@pytest.mark.parametrize('name, how', in_turns(('reference',), ('chunked',)))
def test_autocast(name, how):
    """bfloat16 comes out as bfloat16, near float32, with finite gradients; float16 likewise."""
    encoding = examples.relative(name, (7, 9), head_dims=16)
    inputs = random_inputs(encoding, (7, 9), None, dtype=torch.float32)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.mul_(0.2)
    expected = results(encoding, inputs, (7, 9), None, implementation='reference')
    for dtype in (torch.bfloat16, torch.float16):
        for options in (dict(elements=10 ** 6, long=False, keep=True),
                        dict(elements=2000, long=True, keep=False)):
            with torch.autocast('cpu', dtype=dtype), chunks_of(**options):
                got = results(encoding, [x.to(dtype) for x in inputs], (7, 9), None,
                              implementation=how)
            assert got[0].dtype == dtype
            for one, other in zip(got, expected, strict=True):
                assert one.isfinite().all()
                scale = float(other.abs().max())
                if scale > 1e-5:  # softmax sees no constant, whose gradient is a sum of errors
                    assert float((one.float() - other).abs().max()) <= 4e-2 * max(scale, 0.5)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_sums_over_pairs_in_half_precision(dtype):
    """4,096 weights of one bucket sum up to 1, as do the gradients of one entry of a table; half
    precision alone stops where what is added is less than its last digit."""
    weights = torch.full((1, 1, 1, 4096), 1 / 4096, dtype=dtype)
    ids = torch.zeros(1, 4096, dtype=torch.long)
    assert terms.bucket_sums(weights, ids, 2).tolist() == [[[[1.0, 0.0]]]]
    lookup = torch.zeros(1, 1, 1, 2, dtype=dtype, requires_grad=True)
    terms.gather_buckets(lookup, ids).backward(weights)
    assert lookup.grad.tolist() == [[[[1.0, 0.0]]]]


#: What can compute each kind of term, beside the reference.
#: In chunks a term of the logits without a writer is written out of its definition.
FAST_IMPLEMENTATIONS = {
    'DenseBias': {'sdpa', 'chunked'}, 'OffsetBias': {'sdpa', 'chunked'},
    'TableByQuery': {'chunked'}, 'TableByKey': {'chunked'}, 'TableOnValues': {'chunked'},
    'AxisHalves': {'chunked'}, 'SkewedTable': {'chunked'}, 'VectorsAddedToKeys': set(),
    'VectorAddedToQueries': set(), 'LocalValues': set(), 'Channels': set(), 'GatedTableTerm': set()}


def test_every_kind_of_term_has_the_implementations_that_it_is_said_to_have():
    """One that is missing would run by its definition, and nobody would see it. Each kind is among
    the encodings by which the tests above hold every implementation to the definition."""
    kinds = {terms.DenseBias: [terms.DenseBias(torch.zeros(1, 1, 15, 15))]}
    for name, prefix in itertools.product(examples.RELATIVE, (0, 1)):
        for term in terms_of(examples.relative(name, (3, 5), num_prefix_tokens=prefix), (3, 5)):
            kinds.setdefault(type(term), []).append(term)
    rooms = ('mmposenc.attention.', 'mmposenc.encodings.')
    every = [*terms.Term.__subclasses__(), *terms.Table.__subclasses__()]
    own = {each.__name__ for each in every if each.__module__.startswith(rooms)} - {'Table'}
    assert {kind.__name__ for kind in kinds} == own == set(FAST_IMPLEMENTATIONS)
    for kind, some in kinds.items():
        has = {'sdpa': any(sdpa.fits_attn_mask(term) for term in some),
               'chunked': kind in term_writers.WRITERS}
        assert {how for how, yes in has.items() if yes} == FAST_IMPLEMENTATIONS[kind.__name__], kind


class Slope(terms.Term):
    """A kind that no implementation knows, of the logits or of the output."""

    def __init__(self, on_values):
        self.on_values = on_values

    def reference(self, q, k):
        return torch.linspace(-1, 1, k.shape[2], dtype=q.dtype).expand(1, 1, q.shape[2], -1)

    def output_of_weights(self, weights):
        return weights[..., :4] * 2


@pytest.mark.parametrize('on_values', [False, True])
def test_a_kind_that_no_implementation_knows_runs_by_its_definition(on_values):
    class Encoding(RelativeEncoding):
        def terms(self, q_grid, k_grid, tokens=None):
            return [Slope(on_values)]

    inputs = random_inputs(Encoding(), (3, 5), None)
    expected = results(Encoding(), inputs, (3, 5), None, implementation='reference')
    with chunks_of(100, long=True, keep=False):
        close(results(Encoding(), inputs, (3, 5), None, implementation='auto'), expected)
        if not on_values:
            close(results(Encoding(), inputs, (3, 5), None, implementation='chunked'), expected)
    for how in ('sdpa', *(['chunked'] if on_values else [])):
        with pytest.raises(ValueError, match=f"='{how}' cannot compute .* kind Slope"):
            attend(*inputs, Encoding(), (3, 5), implementation=how)


def test_bad_implementations():
    q = torch.randn(1, 2, 6, 4)
    with pytest.raises(ValueError, match=f"'fast' must be one of {', '.join(IMPLEMENTATIONS)}"):
        attend(q, q, q, implementation='fast')
    with pytest.raises(ValueError,
                       match=r"implementation='chunked' gives no weights \(need_weights=True\)"):
        attend(q, q, q, implementation='chunked', need_weights=True)
