"""FlexAttention: how often it is compiled, and what its kernels for a GPU ask for. Its numbers:
test_engines.py."""
from unittest import mock

import examples
import pytest
import torch
from helpers.relative_checks import random_inputs, terms_of
from torch.nn.attention.flex_attention import flex_attention
from torch.overrides import TorchFunctionMode

from mmposenc.attention import attend
from mmposenc.attention.fast import flex
from mmposenc.attention.fast.choice import with_terms_folded
from mmposenc.attention.terms import DenseBias, Problem
from mmposenc.functional import Grid

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
    return with_terms_folded(Problem(q, q, q, 0.25, terms, query, query, 1))


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
    name for name in examples.RELATIVE if (terms := flex_problem(name).terms)
    and all(map(flex.has_score_summand, terms))])
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
