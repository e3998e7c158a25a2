"""Attention with each encoding under torch.compile: one graph, forward and backward, not compiled
again for each grid."""
import examples
import pytest
import torch
from tinybackbones import randomize
from torch._dynamo.testing import CompileCounterWithBackend

from mmposenc.attention import MultiheadAttention

#: One of each kind of term, and none; all of ``examples.RELATIVE`` take three minutes.
ENCODINGS = ['LogSpacedCPB', None, 'ShawRPE with values', 'TransformerXLRPE', 'HuangRPE',
             'QueryRelative2D', 'RotaryEmbedding2D', 'CombinedRPE',
             'RelativePositionBias geometric', 'FIRE', 'RotaryEmbedding2D stretched', 'LieRE',
             'ComRoPE linear', 'GTA', 'CoPE', 'RotaryEmbedding2D mixed', 'IRPE product qkv',
             'IRPE cross q', 'IRPE euclidean k', 'IRPE quantization qkv', 'IRPE product bias',
             'RotaryEmbedding2D of DINOv3', 'RotaryEmbedding2D of EVA-02']


@pytest.mark.parametrize('name', [
    pytest.param(name, marks=pytest.mark.slow if row else ()) for row, name in
    enumerate(ENCODINGS)])
def test_one_graph_for_many_grids(name):
    torch._dynamo.reset()
    encoding = name and examples.relative(name, (9, 11), head_dims=8, num_prefix_tokens=1)
    module = randomize(MultiheadAttention(16, 2, num_prefix_tokens=1, rel_pos_encoding=encoding))
    counter = CompileCounterWithBackend('aot_eager')
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
    for grid in [(3, 5), (4, 6), (7, 3), (9, 11)]:
        x = torch.randn(2, 1 + grid[0] * grid[1], 16)
        results = []
        for function in (compiled, module):
            module.zero_grad()
            out = function(x, grid)
            out.square().sum().backward()
            results.append([out, *(p.grad for p in module.parameters() if p.grad is not None)])
        torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)
    # Once for (3, 5), once with symbolic sizes, and once more where a guard of the first two fails.
    assert counter.frame_count <= 3


@pytest.mark.parametrize('name', [
    pytest.param('DynamicPositionBias', marks=pytest.mark.slow), 'CRPE'])
def test_one_program_for_many_grids(name):
    """Biases of a network, which are computed in parts elsewhere, and convolutions of values."""
    encoding = examples.relative(name, (9, 11), head_dims=8, num_prefix_tokens=1)
    module = MultiheadAttention(16, 2, num_prefix_tokens=1, rel_pos_encoding=encoding).eval()

    class OfMaps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = module

        def forward(self, x):
            tokens = torch.cat((x.new_zeros(1, 1, 16), x.flatten(2).transpose(1, 2)), 1)
            return self.attention(tokens, tuple(x.shape[2:]))

    sides = {axis: torch.export.Dim(f'side{axis}', min=2, max=30) for axis in (2, 3)}
    program = torch.export.export(OfMaps(), (torch.randn(1, 16, 5, 7),), dynamic_shapes=(sides,))
    x = torch.randn(1, 16, 4, 9)
    torch.testing.assert_close(program.module()(x), OfMaps()(x))
