"""Weights out of an ONNX graph that the test writes itself, byte by byte: no network, no onnx."""
from __future__ import annotations

import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file

from mmposenc.checkpoint import convert_with_report, read_checkpoint, recognise
from mmposenc.preparation.common import PrepareError, sha256_of
from mmposenc.preparation.onnx_weights import named_weights, read_graph
from mmposenc.preparation.pretrained import PretrainedSource, encoder_weights, prepare_pretrained

LAYER = 'backbone.encoder.layer.0'
DIMS = 6


def number(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def field(index: int, value: int | bytes | str) -> bytes:
    """A field of protobuf: a number, or bytes with their length."""
    if isinstance(value, int):
        return number(index << 3) + number(value)
    value = value.encode() if isinstance(value, str) else value
    return number(index << 3 | 2) + number(len(value)) + value


def tensor(name: str, array: np.ndarray, packed: bool = False) -> bytes:
    dims = (field(1, b''.join(map(number, array.shape))) if packed
            else b''.join(field(1, side) for side in array.shape))
    kind = {'f': 1, 'i': 7}[array.dtype.kind]
    return dims + field(2, kind) + field(8, name) + field(9, array.tobytes())


def node(op: str, inputs: list[str], output: str) -> bytes:
    return b''.join(field(1, name) for name in inputs) + field(2, output) + field(4, op)


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
    graph = b''.join(field(1, node(*each)) for each in nodes) + b''.join(
        field(5, tensor(name, array, packed=len(name) % 2 == 0))
        for name, array in tensors.items())
    # Beside the graph: a version, a fixed-width field and a producer, which are passed over.
    return field(1, 8) + number(9 << 3 | 5) + b'1234' + field(2, 'test') + field(7, graph)


def test_products_get_the_name_of_their_bias() -> None:
    tensors, nodes = parts()
    named, anonymous = named_weights(read_graph(model(tensors, nodes)))
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
        named_weights(read_graph(model({**tensors, 'onnx::MatMul_9': random(DIMS, 2)}, nodes)))


def test_damaged_graphs_are_refused() -> None:
    whole = model(*parts())
    for cut in (1, 9, 40, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ValueError, match='no ONNX model'):
            read_graph(whole[:cut])
    with pytest.raises(ValueError, match='no ONNX model'):
        read_graph(b'\xff' * 30)
    rng = np.random.default_rng(0)
    for _ in range(200):  # whatever the bytes: an answer or a ValueError, never another error
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = rng.integers(256)
        try:
            read_graph(bytes(damaged))
        except ValueError:
            pass


def test_numbers_outside_the_graph_are_refused() -> None:
    """As of models over 2 GB, whose numbers lie in a file that the graph names."""
    outside = field(1, 3) + field(2, 1) + field(8, 'w') + field(14, 1)
    graph = field(1, node('Add', ['w', 'x'], 'y')) + field(5, outside)
    with pytest.raises(ValueError, match=r"'w' of shape \(3,\) needs 12 bytes in the graph itself"):
        read_graph(field(7, graph))


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
