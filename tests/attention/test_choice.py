"""Which implementation ``'auto'`` takes, and where SDPA is left out; FlexAttention: how often it is
compiled, and what its kernels for a GPU ask for. (Its numbers: test_engines.py.)"""
import importlib
from unittest import mock

import examples
import pytest
import torch
from helpers.relative_checks import random_inputs, terms_of
from torch.nn.attention.flex_attention import flex_attention
from torch.overrides import TorchFunctionMode

from mmposenc.attention import attend, terms
from mmposenc.attention.fast import choice, flex, thresholds
from mmposenc.attention.terms import DenseBias, Problem
from mmposenc.functional import Grid

SDPA = torch.nn.functional.scaled_dot_product_attention
compute = importlib.import_module('mmposenc.attention.compute')


def test_choice(monkeypatch):
    """By sizes, dtype and what is asked for; the thresholds are those of thresholds.py."""
    def choose(name, grid=(20, 20), **options):
        encoding = None if name is None else examples.relative(name, grid)
        length = grid[0] * grid[1]
        q = torch.zeros(1, 2, length, 4, dtype=options.pop('dtype', torch.float32),
                        requires_grad=options.pop('trains', False))
        own = () if encoding is None else encoding.terms(Grid(*grid), Grid(*grid))
        return choice.fastest_implementation(choice.with_terms_folded(Problem(
            q, q, q, 0.5, list(own), Grid(*grid), Grid(*grid), **options)))

    assert choose('IRPE product k', (3, 4)) == 'reference'
    assert choose(None, (20, 20), dtype=torch.bfloat16) == 'sdpa'
    monkeypatch.setattr(thresholds, 'DEFINITION_BYTES', 0)
    assert choose(None) == 'sdpa' and choose(None, dropout_p=0.1) == 'chunked'
    assert choose(None, dtype=torch.bfloat16) == 'chunked'
    for grid, trains, engine in (((3, 4), False, 'chunked'), ((3, 4), True, 'sdpa'),
                                 ((8, 9), True, 'chunked'), ((11, 11), False, 'chunked')):
        assert choose(None, grid, dtype=torch.bfloat16, trains=trains) == engine
    for faster, engine in ((True, 'chunked'), (False, 'sdpa')):
        monkeypatch.setattr(choice, 'onednn_halves_time', lambda faster=faster: faster)
        assert choose(None, (23, 23)) == engine
    assert choose(None, regions=torch.zeros(1, 400)) == 'chunked'
    assert choose('IRPE product k') == 'chunked'
    assert choose('RotaryEmbedding') == 'sdpa' and choose('QueryAbsolute1D') == 'sdpa'
    with torch.no_grad():
        assert choose('RelativePositionBias', (12, 12)) == 'sdpa'
        assert choose('RelativePositionBias', (12, 12), dtype=torch.bfloat16) == 'chunked'
        assert choose('RelativePositionBias', (25, 25)) == 'chunked'
        for faster, engine in ((True, 'chunked'), (False, 'sdpa')):
            monkeypatch.setattr(choice, 'onednn_halves_time', lambda faster=faster: faster)
            assert choose('RelativePositionBias') == engine
    assert choose('RelativePositionBias', (12, 12)) == 'chunked'


def test_choice_on_an_accelerator():
    """SDPA, with terms of small grids as its mask, or chunks. The meta device stands for it."""
    def choose(name, grid=(50, 84), prefix=0, **options):
        encoding = None if name is None else examples.relative(name, grid, num_prefix_tokens=prefix)
        q = torch.zeros(2, 8, prefix + grid[0] * grid[1], 32, device='meta')
        own = () if encoding is None else encoding.terms(Grid(*grid), Grid(*grid))
        return choice.fastest_implementation(Problem(q, q, q, 0.5, list(own), Grid(*grid),
                                                     Grid(*grid), **options))

    assert choose(None) == choose(None, dropout_p=0.1) == choose(None, (2, 3)) == 'sdpa'
    assert choose(None, regions=torch.zeros(1, 4200, device='meta')) == 'sdpa'
    for name in ('IRPE product k', 'IRPE product qkv', 'RelativePositionBias', 'QueryRelative2D'):
        assert choose(name) == 'chunked' and choose(name, (7, 7), 1) == 'reference'


def test_the_definition_takes_a_share_of_the_memory_of_a_gpu(monkeypatch):
    memory = mock.Mock(total_memory=24 * 2 ** 30)
    monkeypatch.setattr(torch.cuda, 'get_device_properties', lambda device: memory)
    assert choice.definition_bytes(torch.device('cuda:1')) == 24 * 2 ** 30 / 128
    assert choice.definition_bytes(torch.device('xpu')) < 8 * 1050 ** 2 * 4  # a bias of DETR


def test_a_mask_alone_needs_a_gradient():
    """As in frozen blocks with a trained encoding. The kernels of GPUs have no backward pass for
    it; the meta device stands for one."""
    length, refuse = 12, mock.Mock(side_effect=AssertionError('SDPA was called'))
    table = torch.ones(1, 1, length, device='meta')
    for implementation in ('auto', 'sdpa', 'reference'):
        for mask_trains, q_trains in ((True, False), (True, True), (False, False)):
            q = torch.zeros(1, 2, length, 8, device='meta', requires_grad=q_trains)
            bias = table.clone().requires_grad_(mask_trains)
            problem = Problem(q, q.detach(), q.detach(), 1.0, [terms.DenseBias(bias)],
                              implementation=implementation)
            alone = mask_trains and not q_trains
            with mock.patch.object(torch.nn.functional, 'scaled_dot_product_attention',
                                   refuse if alone else mock.Mock(wraps=SDPA)) as called:
                out, _ = compute.output_and_weights(problem, None)
            assert called.called != alone and out.requires_grad == mask_trains


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
            with mock.patch.object(flex, 'compiled_kernel', lambda kind,
                                   run=run: run), torch.no_grad():
                got = attend(q, k, v, encoding, grid, implementation='flex', **options)[0]
                expected = attend(q, k, v, encoding, grid, implementation='reference', **options)[0]
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        assert 1 <= len(graphs) <= 2
    torch._dynamo.reset()


def flex_problem(name, *, batch=2, head_dims=16, dtype=torch.float32, device='cpu'):
    """A problem whose terms have score_summands, and its grid."""
    query = Grid(4, 6)
    encoding = examples.relative(name, query, head_dims=head_dims, num_prefix_tokens=1)
    q = torch.zeros(batch, 2, 25, head_dims, device=device, dtype=dtype)
    terms = list(terms_of(encoding.to(device, dtype), query))
    return choice.with_terms_folded(Problem(q, q, q, 0.25, terms, query, query, 1))


@pytest.mark.parametrize(('options', 'reason'), [
    (dict(head_dims=8), 'head_dims=8 and dtype=torch.float32: at least 16'),
    (dict(dtype=torch.float64), 'dtype=torch.float64: at least 16 and no float64'),
    # 2 heads of 25 queries read 50 buckets each.
    (dict(batch=2 ** 20), f'a look-up of {2 ** 20 * 2 * 25 * 50} numbers, more than '
                          f'{2 ** 31 - 1}')])
def test_what_the_kernels_for_a_gpu_refuse_is_said_before_they_are_compiled(options, reason):
    problem = flex_problem('IRPE product k', device='meta', **options)
    with pytest.raises(ValueError, match=f"implementation='flex' .*{reason}"):
        flex.flex(problem)


class Reads(TorchFunctionMode):
    """Tensors with a gradient that are read by an index."""

    def __init__(self):
        super().__init__()
        self.trained = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__:
            self.trained += [id(args[0])] * args[0].requires_grad
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize('name', [
    name for name in examples.RELATIVE if (own := flex_problem(name).terms)
    and all(map(flex.has_score_summand, own))])
def test_score_summands_read_each_trained_tensor_once(name):
    """Its backward pass refuses a tensor with a gradient that is read twice."""
    problem, index = flex_problem(name), torch.zeros((), dtype=torch.int32)
    q, k = problem.q, problem.k
    summands = [flex.score_summand(term, q, k, 1.0) for term in problem.terms]
    with Reads() as reads:
        for summand in summands:
            summand(index, index, index, index)
    assert len(reads.trained) == len(set(reads.trained))
    assert bool(reads.trained) == any(getattr(x, 'requires_grad', False) for term in problem.terms
                                      for x in vars(term).values())


def test_a_bias_of_one_image_and_head_is_everyones():
    bias, (b, h, i, j) = torch.randn(1, 1, 4, 5), torch.ones(3, 3, 4, 5).nonzero().T
    q, k = torch.zeros(3, 3, 4, 2), torch.zeros(3, 3, 5, 2)
    summand = flex.score_summand(DenseBias(bias), q, k, 1.0)
    assert torch.equal(summand(b, h, i, j), bias[0, 0, i, j])
