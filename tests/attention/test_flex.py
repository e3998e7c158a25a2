"""FlexAttention: how often it is compiled, its mask of blocks, what happens at the limit, and what
its kernels for a GPU ask for."""
from unittest import mock

import examples
import pytest
import torch
from relative_checks import positions, random_inputs
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.overrides import TorchFunctionMode

from mmposenc.attention import attend
from mmposenc.attention.fast import flex
from mmposenc.attention.fast.choice import fold_vectors
from mmposenc.attention.terms import DenseBias, Problem
from mmposenc.functional import Grid
from mmposenc.functional.grids import grid_offsets

GRIDS = [(3, 5), (4, 6), (12, 14), (13, 9)]


def test_grids_in_turns_are_compiled_twice_at_most():
    """One graph for all sizes (and one more for the first), with padding and without; no part of it
    is left to Python. What a compiler makes of the graph is not tested here."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    for masked in (False, True):
        graphs.clear()
        run = torch.compile(flex_attention, dynamic=True, fullgraph=True, backend=backend)
        for grid in GRIDS:
            encoding = examples.relative('CombinedRPE of two', grid, head_dims=8,
                                         num_prefix_tokens=1)
            q, k, v = random_inputs(encoding, grid, None, dtype=torch.float32)
            mask = torch.zeros(2, k.shape[2], dtype=torch.bool)
            mask[0, -3:] = True
            options = dict(key_padding_mask=mask if masked else None)
            with mock.patch.object(flex, '_eager', lambda run=run: run), torch.no_grad():
                got = attend(q, k, v, encoding, grid, form='flex', **options)[0]
                expected = attend(q, k, v, encoding, grid, form='definition', **options)[0]
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        assert 1 <= len(graphs) <= 2 + masked
    torch._dynamo.reset()


@pytest.mark.parametrize('keys', [128, 300, 5])
def test_blocks_of_padding_are_those_of_the_mask(keys):
    """As torch finds them from all pairs: blocks without a valid key are skipped, and whole ones
    are not masked."""
    padding = torch.arange(keys) >= torch.tensor([keys, keys // 2, 1])[:, None]
    found = flex.padding_blocks(padding, 200)
    expected = create_block_mask(lambda b, h, i, j: ~padding[b, j], 3, 1, 200, keys, device='cpu')
    for kind in ('kv', 'full_kv', 'q', 'full_q'):
        count, index = (getattr(found, f'{kind}_{part}') for part in ('num_blocks', 'indices'))
        assert torch.equal(count, getattr(expected, f'{kind}_num_blocks'))
        assert torch.equal(index, getattr(expected, f'{kind}_indices'))
    assert found.seq_lengths == (200, keys)


@pytest.mark.parametrize('key', [Grid(4, 6), Grid(2, 3, 2.0, 2.0)], ids=str)
@pytest.mark.parametrize('prefix', [0, 2])
def test_places_of_pairs_hold_their_offsets(key, prefix):
    """And three numbers of their own where one of them, or both, are prefix tokens."""
    query, cpu = Grid(4, 6), torch.device('cpu')
    place, behind = flex.pair_places(query, key, prefix, cpu)
    rows, _, cols, _ = grid_offsets(query, key, cpu)
    table = flex.with_prefix((100.0 * rows[:, None] + cols).flatten(),
                             torch.tensor([1e4, 2e4, 3e4]), behind)
    sides = positions(query, key, prefix)
    found = table[place(torch.arange(len(sides[0]))[:, None], torch.arange(len(sides[1])))]
    for i, one in enumerate(sides[0]):
        for j, other in enumerate(sides[1]):
            expected = (3e4 if one is other else 1e4 if one is None else 2e4) if (
                one is None or other is None) else 100 * (one[0] - other[0]) + one[1] - other[1]
            assert found[i, j].item() == pytest.approx(expected, abs=1e-3), (i, j)


def test_at_the_limit_of_recompilations_pieces_take_over():
    def refuse(*args, **kwargs):
        raise torch._dynamo.exc.FailOnRecompileLimitHit('recompile_limit reached')

    encoding = examples.relative('IRPE product k', (3, 5))
    q, k, v = random_inputs(encoding, (3, 5), None)
    with mock.patch.object(flex, '_eager', lambda: refuse), (
            pytest.warns(UserWarning, match='compiled too often')):
        out = attend(q, k, v, encoding, (3, 5), form='flex')[0]
    torch.testing.assert_close(out, attend(q, k, v, encoding, (3, 5), form='definition')[0])


def flex_problem(name, *, batch=2, head_dims=16, dtype=torch.float32, device='cpu'):
    """A problem whose terms have score_mods, and its grid."""
    query = Grid(4, 6)
    encoding = examples.relative(name, query, head_dims=head_dims, num_prefix_tokens=1)
    q = torch.zeros(batch, 2, 25, head_dims, device=device, dtype=dtype)
    terms = list(encoding.to(device, dtype).terms(query, query))
    return fold_vectors(Problem((q, q, q), terms, query, query, 1))


WITH_SCORE_MODS = [name for name in examples.RELATIVE if (terms := flex_problem(name).terms)
                   and all(map(flex.has_score_mod, terms))]


@pytest.mark.parametrize(('options', 'reason'), [
    (dict(head_dims=8), 'head_dims=8 is below 16'),
    (dict(dtype=torch.float64), 'dtype=torch.float64 is none of torch.float16, torch.bfloat16, '
                                'torch.float32'),
    # 2 heads of 25 queries read 50 buckets each.
    (dict(batch=2 ** 20), f'a look-up would have {2 ** 20 * 2 * 25 * 50} numbers, more than '
                          f'{2 ** 31 - 1}'),
])
def test_what_the_kernels_for_a_gpu_refuse_is_said_before_they_are_compiled(options, reason):
    """``form='auto'`` takes another engine, ``form='flex'`` is an error."""
    problem = flex_problem('IRPE product k', device='meta', **options)
    q, k, v = problem.qkv
    assert flex.refusal(problem) == reason
    with mock.patch.object(flex, 'has_triton', lambda: True):
        assert not flex.fits(problem)
        assert flex.fits(flex_problem('IRPE product k', device='meta'))
    encoding = examples.relative('IRPE product k', (4, 6), head_dims=q.shape[3],
                                 num_prefix_tokens=1).to('meta', q.dtype)
    with pytest.raises(ValueError, match="form='flex' cannot be compiled for a GPU: " + reason):
        attend(q, k, v, encoding, (4, 6), form='flex')


@pytest.mark.parametrize(('dtype', 'head_dims', 'options'), [
    (torch.bfloat16, 64, flex.HALF), (torch.float16, 16, flex.HALF),
    (torch.float32, 64, flex.FLOAT32), (torch.bfloat16, 136, None)])
def test_blocks_are_small_where_look_ups_would_spill(dtype, head_dims, options):
    """What is handed to the compiled function on a GPU, and that its blocks divide the mask's."""
    q = torch.empty(1, 2, 24, head_dims, device='meta', dtype=dtype)
    encoding = examples.relative('IRPE product k', (4, 6), head_dims=head_dims).to('meta', dtype)
    seen = []
    with mock.patch.object(flex, 'compiled', lambda key: lambda q, k, v, **given: (
            seen.append(given['kernel_options']), q)[1]):
        attend(q, q, q, encoding, (4, 6), form='flex')
    assert seen == [options]
    assert all(flex.BLOCK % size == 0 for size in (options or {}).values())


class Reads(TorchFunctionMode):
    """Tensors that are read by an index, and those of them that need a gradient."""

    def __init__(self):
        super().__init__()
        self.read, self.trained = [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__:
            self.read.append(args[0])
            self.trained += [id(args[0])] * args[0].requires_grad
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize('name', WITH_SCORE_MODS)
def test_score_mods_read_each_trained_tensor_once_and_say_how_large_they_are(name):
    """Its backward pass refuses a tensor with a gradient that is read twice; and 32-bit indices
    have to be enough, which nothing in torch checks."""
    problem, index = flex_problem(name), torch.zeros((), dtype=torch.int32)
    q, k, _ = problem.qkv
    with Reads() as reads:
        for term in problem.terms:
            before = len(reads.read)
            mod = flex.score_mod(term, q, k, 1.0)
            del reads.read[before:]
            mod(index, index, index, index)
            by_image = [x.numel() for x in reads.read[before:] if x.dim() == 4]
            assert flex.look_ups(term, q, k) == max(by_image, default=0)
    assert len(reads.trained) == len(set(reads.trained))
    assert bool(reads.trained) == any(getattr(x, 'requires_grad', False) for term in problem.terms
                                      for x in vars(term).values())


def test_a_bias_of_one_image_and_head_is_everyones():
    bias, (b, h, i, j) = torch.randn(1, 1, 4, 5), torch.ones(3, 3, 4, 5).nonzero().T
    mod = flex.score_mod(DenseBias(bias), torch.zeros(3, 3, 4, 2), torch.zeros(3, 3, 5, 2), 1.0)
    assert torch.equal(mod(b, h, i, j), bias[0, 0, i, j])
