"""Writes a trained model as an ONNX file, after a check that it computes the same."""
from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn

from mmposenc.terminal.options import TOLERANCE
from mmposenc.writing import check_new_files, writing_whole_file

from ..config.checks import check_checkpoint
from ..config.images import preprocessor_config
from ..config.models import build_model, load_all_weights
from ..config.nodes import type_without_library
from ..config.parsed import ParsedConfig
from .export_check import Check, Notes, Run, compare_with_model, pictures_of_test_data
from .raw_outputs import Detections, RawOutputs

#: Parts of models that cannot be exported, by class name, and why.
REFUSED = {
    'MSDeformAttnPixelDecoder': 'mmdet puts the sizes of its maps into tensors, and a file would '
                                'have those of its example',
    'DDQTransformerDecoder': 'its layers choose queries by suppression, in no fixed number',
    'PPM': 'pooling to a fixed grid (PSPNet, UperNet) takes one size of images only; use '
           '--fixed-size',
}
#: The packages that are needed to write and check an ONNX file.
PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
#: The key under which a file stores what it says about itself.
NOTES = 'mmposenc'
#: The first opset with LayerNormalization, Gelu and resizing with antialias.
OPSET = 20


def export(cfg: Config, checkpoint: str | None, out: str | Path, *,
           size: tuple[int, int] = (256, 320), fixed_size: bool = False, decode: bool = False,
           tolerance: float = TOLERANCE, overwrite: bool = False) -> tuple[Notes, Check]:
    """Writes a model as an ONNX file for deployment, if that gives what the model gives.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None leaves them random.
        out: ends in ``.onnx``.
        size: (H, W) of the example; other sizes are derived from it for the comparison.
        fixed_size: images of this one size; else any height and width, and always any number.
        decode: the file gives the boxes of one image, suppressed, as ``predict`` does; of a
            detector of one stage.
        tolerance: the largest difference from the model itself, in shares of an output's size.
        overwrite: replace ``out``.

    Returns:
        What the file says about itself, and how it was compared with the model.

    Raises:
        ValueError: for arguments and models that do not fit, before any work; RuntimeError where
            the file gives other numbers than the model, and is not kept.
        FileNotFoundError: no such checkpoint.
    """
    path = _checked_out_path(out, checkpoint, overwrite, str(cfg.filename))
    if not 0 < tolerance < 1:
        raise ValueError(f'tolerance={tolerance} must be above 0 and below 1')
    model = build_model(cfg).eval()
    refuse_unexportable(model, fixed_size)
    meta = {} if checkpoint is None else load_all_weights(model, checkpoint)
    raw = (Detections if decode else RawOutputs)(model).eval()
    if raw.pads and raw.queries:  # A DETR masks what is padded, which the file would not.
        raise ValueError(f'data_preprocessor pads pictures, and {type(raw.model).__name__} leaves '
                         f'padding out, which a file cannot; give --cfg-options '
                         f'model.data_preprocessor.pad_size_divisor=1')
    parsed = ParsedConfig(cfg)
    example = torch.full((1 if decode else 2, parsed.channels, *size), 128.0)
    program = _exported_program(raw, example, fixed_size)
    notes: Notes = dict(
        task=parsed.library, channels=order_of_channels(parsed),
        steps=steps_before_the_network(parsed),
        outputs=raw.output_names(example), **_size_limits(program, size, fixed_size))
    if notes['task'] == 'mmseg':
        from mmposenc.openmmlab.mmseg.foreground import foreground_threshold
        if (threshold := foreground_threshold(model)) is not None:
            notes['threshold'] = threshold
    if classes := (meta.get('dataset_meta') or {}).get('classes'):
        notes['classes'] = list(classes)
    with writing_whole_file(path, suffix='.partial.onnx') as partial:
        _write_onnx(program, partial, notes)
        pictures = pictures_of_test_data(cfg, notes) if decode else []
        checked = compare_with_model(raw, onnx_runner(partial), example, notes, pictures, tolerance)
    return notes, checked


def refuse_unexportable(model: nn.Module, fixed_size: bool) -> None:
    """Raise an error for a model that can't be exported, with the part that is in the way.

    Args:
        model: a model of mmdet, mmseg or mmpretrain.
        fixed_size: whether images of one size are enough.

    Raises:
        ValueError: naming the part, and why.
    """
    if hasattr(model, 'roi_head') or hasattr(model, 'rpn_head'):
        raise ValueError(f'{type(model).__name__} has two stages: the number of its proposals '
                         f'depends on the image, and there are no raw outputs between; export a '
                         f'detector of one stage, or the backbone (docs/export.md)')
    if hasattr(model, 'forward_transformer'):
        from mmposenc.openmmlab.mmdet.detr.encoded import Encoded
        if not isinstance(model, Encoded):
            name = type(model).__name__
            raise ValueError(f"model.type={name!r} is mmdet's, whose code needs the sizes of "
                             f"images as numbers; write 'mmposenc.{name}', which takes the "
                             f"same weights")
    for name, module in model.named_modules():
        kind = next((base.__name__ for base in type(module).__mro__ if base.__name__ in REFUSED),
                    None)
        if kind is not None and not (fixed_size and '--fixed-size' in REFUSED[kind]):
            raise ValueError(f'{name} is a {kind}: {REFUSED[kind]}')


def _checked_out_path(out: str | Path, checkpoint: str | None, overwrite: bool, config: str
                      ) -> Path:
    path = Path(out)
    if path.suffix != '.onnx':
        raise ValueError(f'{path} must end in .onnx')
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f'{path}: an ONNX file needs {", ".join(missing)}; '
                         f'pip install {" ".join(PACKAGES)}')
    check_new_files(path.parent, [path.name], 'OUT', ours=lambda _: overwrite,
                    inputs=(config, checkpoint or config), remedy='give --overwrite to replace it')
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
    return path


def order_of_channels(parsed: ParsedConfig) -> str:
    """The channels that a file takes: 'RGB', 'BGR' or 'grey'."""
    preprocessor = preprocessor_config(parsed)
    if parsed.channels == 1:
        return 'grey'
    return 'RGB' if preprocessor.get('bgr_to_rgb') or preprocessor.get('to_rgb') else 'BGR'


def steps_before_the_network(parsed: ParsedConfig) -> list[dict[str, Any]]:
    """The steps of the test pipeline by which ``predict`` changes a picture, such as its resizing,
    for those who run the file."""
    return [dict(step) for step in parsed.pipeline('test')
            if not type_without_library(step).startswith(('Load', 'Pack'))]


def _exported_program(raw: RawOutputs, example: Tensor,
                      fixed_size: bool) -> torch.export.ExportedProgram:
    """Export the model as a graph. If its code turns a symbolic size into a number, that is an
    error and does not silently become a condition."""
    dynamic = torch.export.Dim.DYNAMIC
    shapes = {2: dynamic, 3: dynamic} if not fixed_size else {}
    if len(example) > 1:
        shapes[0] = dynamic
    with torch.no_grad():
        return torch.export.export(raw, (example,), dynamic_shapes=(shapes,), strict=False)


def _size_limits(program: torch.export.ExportedProgram, size: tuple[int, int],
                 fixed_size: bool) -> Notes:
    """The smallest and largest height and width for which the graph holds; None means no limit.

    Raises:
        ValueError: it holds for small images only, as that of an example whose maps have a single
            cell does, and images of any size are wanted.
    """
    images = next(node for node in program.graph.nodes
                  if node.op == 'placeholder' and node.name == 'images').meta['val']
    sides: dict[str, list[int | None]] = {}
    for name, side in (('height', images.shape[2]), ('width', images.shape[3])):
        if isinstance(side, int):
            sides[name] = [side, side]
        else:
            limits = program.range_constraints[side.node.expr]
            sides[name] = [int(limits.lower),
                           int(limits.upper) if limits.upper.is_Integer else None]
        least, most = sides[name]
        if most is not None and not fixed_size:
            raise ValueError(f'size={size}: the graph of this example would hold only for {name}s '
                             f'from {least} to {most} pixels; give a larger --size, or '
                             '--fixed-size')
    return sides


def _write_onnx(program: torch.export.ExportedProgram, path: Path, notes: Notes) -> None:
    """Write one file that contains the weights and no path of this machine."""
    from onnxscript import opset18 as op

    def nms_of_onnx(boxes, scores, iou_threshold: float, most: int):
        indices = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(scores, [0, 1]), most,
                                     iou_threshold, 0.0)
        last = op.Slice(indices, [2], [3], [1])
        return op.Reshape(last, [-1])

    written = torch.onnx.export(program, (), dynamo=True, verbose=False, opset_version=OPSET,
                             optimize=False,  # It may drop one of two equal limits of numbers.
                             custom_translation_table={
                                 torch.ops.mmposenc.suppress.default: nms_of_onnx},
                             input_names=['images'], output_names=notes['outputs'])
    assert written is not None
    for graph in (written.model.graph, *(each.graph for each in written.model.functions.values())):
        for node in graph.all_nodes():  # Stack traces have the paths of files on this machine.
            node.metadata_props.clear()
            node.doc_string = None
    written.model.metadata_props[NOTES] = json.dumps(notes, default=str)
    written.save(path, external_data=False)


def onnx_runner(path: Path, inputs: Sequence[str] = ('images',)) -> Run:
    """Load an ONNX file on the CPU as a function of tensors, given in the order of ``inputs``."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    return lambda *args: [torch.from_numpy(np.asarray(each)) for each in session.run(
        None, {name: x.numpy() for name, x in zip(inputs, args, strict=True)})]
