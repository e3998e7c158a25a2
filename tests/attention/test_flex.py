"""FlexAttention: how often it is compiled, its mask of blocks, and what happens at the limit."""
from unittest import mock

import examples
import pytest
import torch
from relative_checks import random_inputs
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from mmposenc.attention import attend
from mmposenc.functional.attention import flex

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


def test_at_the_limit_of_recompilations_pieces_take_over():
    def refuse(*args, **kwargs):
        raise torch._dynamo.exc.FailOnRecompileLimitHit('recompile_limit reached')

    encoding = examples.relative('IRPE product k', (3, 5))
    q, k, v = random_inputs(encoding, (3, 5), None)
    with mock.patch.object(flex, '_eager', lambda: refuse), (
            pytest.warns(UserWarning, match='compiled too often')):
        out = attend(q, k, v, encoding, (3, 5), form='flex')[0]
    torch.testing.assert_close(out, attend(q, k, v, encoding, (3, 5), form='definition')[0])
