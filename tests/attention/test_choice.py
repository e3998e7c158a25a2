"""Which implementation ``'auto'`` takes, and where SDPA is left out."""
import importlib
from unittest import mock

import examples
import torch

from mmposenc.attention import terms
from mmposenc.attention.fast import choice, thresholds
from mmposenc.attention.terms import Problem
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
    monkeypatch.setattr(thresholds, 'REFERENCE_BYTES', 0)
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
    assert choice.reference_bytes(torch.device('cuda:1')) == 24 * 2 ** 30 / 128
    assert choice.reference_bytes(torch.device('xpu')) < 8 * 1050 ** 2 * 4  # a bias of DETR


def test_a_mask_alone_needs_a_gradient():
    """As in frozen blocks with a trained encoding. The kernels of GPUs have no backward pass for
    it; the meta device stands for one."""
    length, refuse = 12, mock.Mock(side_effect=AssertionError('SDPA was called'))
    table = torch.ones(1, 1, length, device='meta')
    for implementation in ('auto', 'sdpa', 'reference'):
        for mask_trains, q_trains in ((True, False), (True, True), (False, False)):
            q = torch.zeros(1, 2, length, 8, device='meta', requires_grad=q_trains)
            bias = table.clone().requires_grad_(mask_trains)
            problem = Problem(q, q.detach(), q.detach(), 1.0, [terms.DenseBias(bias)])
            alone = mask_trains and not q_trains
            with mock.patch.object(torch.nn.functional, 'scaled_dot_product_attention',
                                   refuse if alone else mock.Mock(wraps=SDPA)) as called:
                out, _ = compute.output_and_weights(problem, None, implementation)
            assert called.called != alone and out.requires_grad == mask_trains
