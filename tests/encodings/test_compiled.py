"""Attention with each encoding as one graph for all grids: compiled, forward and backward, and
exported, as a program and as an ONNX file."""
import examples
import pytest
import torch
from helpers.scripts import short
from helpers.tiny_backbones import randomize
from torch._dynamo.testing import CompileCounterWithBackend

from mmposenc.attention import MultiheadAttention
from mmposenc.engine.apps.export import onnx_runner

#: Also compiled: other terms of a class, and options that compute with the sizes of grids.
MORE = ['ShawRPE with values', 'RelativePositionBias geometric', 'RotaryEmbedding stretched',
        'RotaryEmbedding mixed', 'RotaryEmbedding of DINOv3', 'RotaryEmbedding of EVA-02',
        'IRPE product qkv', 'IRPE cross q', 'IRPE euclidean k', 'IRPE quantization qkv',
        'IRPE product bias']


def attention(name):
    encoding = name and examples.relative(name, (9, 11), head_dims=8, num_prefix_tokens=1)
    return randomize(MultiheadAttention(16, 2, num_prefix_tokens=1, rel_pos_encoding=encoding))


@pytest.mark.parametrize('name', short([None, *examples.FIRST, *MORE], 'LogSpacedCPB'))
def test_one_graph_for_many_grids(name):
    torch._dynamo.reset()
    module = attention(name)
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


class OfMaps(torch.nn.Module):
    """Attention over the cells of a map behind a prefix token."""

    def __init__(self, name):
        super().__init__()
        self.attention = attention(name).eval()

    def forward(self, x):
        tokens = torch.cat((x.new_zeros(1, 1, 16), x.flatten(2).transpose(1, 2)), 1)
        return self.attention(tokens, tuple(x.shape[2:]))


@torch.no_grad()
@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name', short(examples.FIRST, 'CRPE'))
def test_one_file_for_many_grids(name, tmp_path):
    module = OfMaps(name)
    if not any(isinstance(each, torch.nn.Conv2d) for each in module.modules()):
        module.double()  # onnxruntime has no such convolution
    x = torch.randn(1, 16, 4, 9, dtype=next(module.parameters()).dtype)
    sides = {axis: torch.export.Dim.DYNAMIC for axis in (2, 3)}
    program = torch.export.export(module, (x[..., :3, :7].clone(),), dynamic_shapes=(sides,))
    torch.testing.assert_close(program.module()(x), module(x))
    torch.onnx.export(program, (), tmp_path / 'model.onnx', dynamo=True, verbose=False,
                      input_names=['x'])
    torch.testing.assert_close(onnx_runner(tmp_path / 'model.onnx', ['x'])(x)[0], module(x))
