"""Compiled layers of DETR: few graphs for all sizes and paddings, with the numbers and gradients of
eager mode."""
import copy

import pytest
import torch
from helpers.tiny_detr import build, detr
from torch._dynamo.testing import CompileCounterWithBackend

from mmposenc.engine.training.compiling import compile_regions
from mmposenc.functional.masking import extents_to_mask

# test_sharing.py compiles an encoder in the short suite
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('fresh_compiler')]
#: Grids, and the rows and columns that the second image fills.
BATCHES = (((4, 6), (3, 6)), ((5, 7), (2, 3)), ((7, 3), (7, 2)))


def test_layers_of_the_decoder():
    """Two graphs: the queries of the first layer need no gradient."""
    cfg = detr()
    cfg['decoder']['num_layers'] = 3
    eager = build(cfg).decoder
    compiled = copy.deepcopy(eager)
    counter = CompileCounterWithBackend('aot_eager')
    assert compile_regions(compiled, backend=counter, dynamic=True, fullgraph=True) == {
        'DetrDecoderLayer': 3}
    positions = torch.randn(2, 5, 16)
    for hw, extent in BATCHES:
        x = torch.randn(2, hw[0] * hw[1], 16, requires_grad=True)  # as from a backbone
        mask = extents_to_mask([hw, extent], hw, torch.device('cpu')).flatten(1)
        found = []
        for module in (compiled, eager):
            module.zero_grad()
            out = module(query=torch.zeros(2, 5, 16), key=x, value=x, key_pos=x.detach().flip(1),
                         query_pos=positions, key_padding_mask=mask)
            out.square().mean().backward()
            found.append((out.detach(), [p.grad for p in module.parameters()]))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert counter.frame_count == 2
