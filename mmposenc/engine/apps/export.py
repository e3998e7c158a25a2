"""Writes a trained model as an ONNX file or an exported program, after a check that it computes the
same."""
from __future__ import annotations

import bisect
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn

from mmposenc.checkpoint.integrity import writing_whole_file
from mmposenc.terminal.options import OPSET, TOLERANCE

from ..config.checks import check_checkpoint, check_writable_folder
from ..config.models import build_model, image_channels, load_all_weights, preprocessor_config
from ..config.nodes import (
    find_or_add_custom_hook,
    pipelines_of_phase,
    type_name,
    type_without_library,
)
from ..config.testing import scope_of
from .export_check import Check, Notes, Run, compare_with_model, pictures_of_test_data
from .raw_outputs import Detections, Normalisation, RawOutputs

#: Parts of models that cannot be exported, by class name, and why.
REFUSED = {
    'MultiScaleDeformableAttention': 'deformable attention samples maps at places that it computes',
    'PPM': 'pooling to a fixed grid (PSPNet, UperNet) takes one size of images only; use '
           '--fixed-size',
}
#: The packages that are needed to write and check an ONNX file.
PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
#: The key under which a file stores what it says about itself.
NOTES = 'mmposenc'


class Exported(NamedTuple):
    """What :func:`export` wrote.

    Attributes:
        path: the file.
        notes: what it says about itself.
        check: how it was compared with the model.
    """

    path: Path
    notes: Notes
    check: Check


def export(cfg: Config, checkpoint: str | None, out: str | Path, *,
           size: tuple[int, int] = (256, 320), fixed_size: bool = False, normalise: bool = False,
           decode: bool = False, tolerance: float = TOLERANCE, opset: int = OPSET,
           overwrite: bool = False) -> Exported:
    """Writes a model as a file for deployment, if that gives what the model gives.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None leaves them random.
        out: ``.onnx``, or ``.pt2`` for ``torch.export.load``.
        size: (H, W) of the example; other sizes are derived from it for the comparison.
        fixed_size: images of this one size; else any height and width, and always any number.
        normalise: the file takes pixels from 0 to 255, else images that are normalised.
        decode: the file gives the boxes of one image, suppressed, as ``predict`` does; an ONNX file
            of a detector of one stage.
        tolerance: the largest difference from the model itself, in shares of an output's size.
        opset: of an ONNX file.
        overwrite: replace ``out``.

    Raises:
        ValueError: for arguments and models that do not fit, before any work; RuntimeError where
            the file gives other numbers than the model, and is not kept.
        FileNotFoundError: no such checkpoint.
    """
    path = _checked_out_path(out, checkpoint, size, overwrite)
    if not 0 < tolerance < 1:
        raise ValueError(f'tolerance={tolerance} must be above 0 and below 1')
    if decode and path.suffix != '.onnx':
        raise ValueError(f'--decode: {path} must end in .onnx')
    model = build_model(cfg).eval()
    refuse_unexportable(model, fixed_size)
    meta = {} if checkpoint is None else load_all_weights(model, checkpoint)
    statistics, notes = _normalisation_and_notes(cfg, normalise)
    raw = (Detections if decode else RawOutputs)(model, statistics).eval()
    _refuse_other_padding(cfg, raw)
    channels = image_channels(cfg)
    if not fixed_size:
        _check_example_size(raw, size, channels)
    example = torch.ones(1 if decode else 2, channels, *size)
    notes.update(task=scope_of(cfg), outputs=raw.output_names(example), **preparing_steps(cfg))
    if notes['task'] == 'mmseg':
        from mmposenc.openmmlab.mmseg.segmentation import foreground_threshold
        if (threshold := foreground_threshold(model)) is not None:
            notes['threshold'] = threshold
    if classes := (meta.get('dataset_meta') or {}).get('classes'):
        notes['classes'] = list(classes)
    pictures = pictures_of_test_data(raw, cfg, notes) if decode else []
    program = _exported_program(raw, example, fixed_size)
    notes.update(_size_limits(program))
    with writing_whole_file(path, suffix=f'.partial{path.suffix}') as partial:
        write = _write_onnx if path.suffix == '.onnx' else _write_pt2
        write(program, partial, notes, opset)
        reader = onnx_runner if path.suffix == '.onnx' else pt2_runner
        checked = compare_with_model(raw, reader(partial), example, notes, pictures, tolerance)
    return Exported(path, notes, checked)


def refuse_unexportable(model: nn.Module, fixed_size: bool) -> None:
    """Raise an error for a model that can't be exported, with the part that is in the way.

    Args:
        model: of mmdet, mmseg or mmpretrain.
        fixed_size: whether images of one size are enough.

    Raises:
        ValueError: naming the part, and why.
    """
    if hasattr(model, 'roi_head') or hasattr(model, 'rpn_head'):
        raise ValueError(f'{type(model).__name__} has two stages: the number of its proposals '
                         f'depends on the image, and there are no raw outputs between; export a '
                         f'detector of one stage, or the backbone (docs/export.md)')
    for name, module in model.named_modules():
        kind = next((base.__name__ for base in type(module).__mro__ if base.__name__ in REFUSED),
                    None)
        if kind is not None and not (fixed_size and '--fixed-size' in REFUSED[kind]):
            raise ValueError(f'{name} is a {kind}: {REFUSED[kind]}')
        if getattr(module, 'locality', None) == 'random_sparse':
            raise ValueError(f"{name} is a ContextPool with locality='random_sparse', which draws "
                             f'other tokens in each call')


def _refuse_other_padding(cfg: Config, raw: RawOutputs) -> None:
    """Raise ValueError for a model for which ``predict`` pads pictures in another way than the file
    would: DETR masks what is padded, and KeepPaddingOut predicts without it."""
    keeper = find_or_add_custom_hook(cfg, 'KeepPaddingOut', add=False)
    if not raw.pads or not raw.queries and keeper is None:
        return
    who = type(raw.model).__name__ if keeper is None else 'KeepPaddingOut'
    option = 'test_cfg=None' if scope_of(cfg) == 'mmseg' else 'pad_size_divisor=1'
    raise ValueError(f'data_preprocessor pads pictures, and {who} leaves padding out, which a file '
                     f'cannot; give --cfg-options model.data_preprocessor.{option}')


def _checked_out_path(out: str | Path, checkpoint: str | None, size: tuple[int, int],
                      overwrite: bool) -> Path:
    path = Path(out)
    if path.suffix not in ('.onnx', '.pt2'):
        raise ValueError(f'{path} must end in .onnx, or in .pt2 for torch.export.load')
    if path.suffix == '.onnx':
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise ValueError(f'{path}: an ONNX file needs {", ".join(missing)}; '
                             f'pip install {" ".join(PACKAGES)}')
    if path.exists() and not overwrite:
        raise ValueError(f'{path} exists; give --overwrite to replace it')
    check_writable_folder(str(path.absolute().parent), 'OUT')
    if not path.absolute().parent.is_dir():
        raise ValueError(f'{path.absolute().parent} is no folder')
    if min(size) < 32:
        raise ValueError(f'size={size} must be at least (32, 32)')
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
    return path


def _check_example_size(raw: RawOutputs, size: tuple[int, int], channels: int) -> None:
    """Raise ValueError for an example whose maps have a single cell, because the graph would then
    hold for such maps only."""
    def count_one_cell_maps(size: tuple[int, int]) -> int:
        count = 0

        def count_single(module: nn.Module, args: object, out: object) -> None:
            nonlocal count
            for each in out if isinstance(out, (tuple, list)) else (out,):
                count += isinstance(each, Tensor) and each.dim() == 4 and 1 in each.shape[2:]
        hooks = [module.register_forward_hook(count_single) for module in raw.model.modules()]
        try:
            raw.output_names(torch.ones(1, channels, *size))
        finally:
            for hook in hooks:
                hook.remove()
        return count

    count, most = count_one_cell_maps(size), 4 * max(size)
    # A map whose size does not grow is a mean over all cells.
    if not count or count == (always := count_one_cell_maps((most, most))):
        return
    least = bisect.bisect_left(range(most), -always, min(size),
                               key=lambda side: -count_one_cell_maps((side, side)))
    raise ValueError(f'size={size} is too small an example: the graph would hold only for maps of '
                     f'one cell; it must be at least ({least}, {least}), or give --fixed-size')


def _normalisation_and_notes(cfg: Config, inside: bool
                             ) -> tuple[Normalisation, Notes]:
    """The (mean, std) to put into the file, if the user asked for it, and what the file says about
    its input."""
    preprocessor = preprocessor_config(cfg)
    mean, std = (list(preprocessor.get(name) or ()) for name in ('mean', 'std'))
    if inside and not mean:
        raise ValueError('--normalise: data_preprocessor of the config has no mean and std')
    channels = ('grey' if image_channels(cfg) == 1 else
                'RGB' if preprocessor.get('bgr_to_rgb') or preprocessor.get('to_rgb') else 'BGR')
    notes = dict(input='pixels from 0 to 255' if inside else 'normalised', channels=channels,
                 mean=mean, std=std)
    return ((mean, std) if inside else None), notes


def preparing_steps(cfg: Config) -> Notes:
    """What ``predict`` does with a picture between reading and normalising it, for those who run
    the file: ``resize`` with scale (width, height), keep_ratio and interpolation, or None; and
    other steps by name."""
    steps = [step for step in [[], *pipelines_of_phase(cfg, 'test')][-1]
             if not type_without_library(step).startswith(('Load', 'Pack'))]
    resize: Notes | None = None
    others: list[str] = []
    for step in steps:
        if type_without_library(step) != 'Resize' or step.get('scale') is None or resize or others:
            others.append(type_name(step))
            continue
        scale = step['scale'] if isinstance(step['scale'], (list, tuple)) else [step['scale']] * 2
        resize = dict(scale=[int(min(side, 10 ** 6)) for side in scale],
                      keep_ratio=bool(step.get('keep_ratio', False)),
                      interpolation=step.get('interpolation', 'bilinear'))
    return dict(resize=resize, other_steps=others)


def _exported_program(raw: RawOutputs, example: Tensor,
                      fixed_size: bool) -> torch.export.ExportedProgram:
    """Export the model as a graph. If its code turns a symbolic size into a number, that is an
    error and does not silently become a condition."""
    dynamic = torch.export.Dim.DYNAMIC
    shapes = {2: dynamic, 3: dynamic} if not fixed_size else {}
    if len(example) > 1:
        shapes[0] = dynamic
    with torch.no_grad():
        program = torch.export.export(raw, (example,), dynamic_shapes=(shapes,), strict=False)
    for node in program.graph.nodes:  # Stack traces have the paths of files on this machine.
        node.meta.pop('stack_trace', None)
    return program


def _size_limits(program: torch.export.ExportedProgram) -> Notes:
    """The smallest and largest height and width for which the graph holds; None means no limit."""
    images = next(node for node in program.graph.nodes
                  if node.op == 'placeholder' and node.name == 'images').meta['val']
    sides: dict[str, list[int | None]] = {}
    for name, side in (('height', images.shape[2]), ('width', images.shape[3])):
        if isinstance(side, int):
            sides[name] = [side, side]
            continue
        limits = program.range_constraints[side.node.expr]
        upper = limits.upper
        sides[name] = [int(limits.lower), int(upper) if upper.is_Integer else None]
    return sides


def _write_onnx(program: torch.export.ExportedProgram, path: Path, notes: Notes,
                opset: int) -> None:
    """Write one file that contains the weights and no path of this machine."""
    from onnxscript import opset18 as op

    def nms_of_onnx(boxes, scores, iou_threshold: float, most: int):
        indices = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(scores, [0, 1]), most,
                                     iou_threshold, 0.0)
        last = op.Slice(indices, [2], [3], [1])
        return op.Reshape(last, [-1])

    written = torch.onnx.export(program, (), dynamo=True, verbose=False, opset_version=opset,
                             custom_translation_table={
                                 torch.ops.mmposenc.suppress.default: nms_of_onnx},
                             input_names=['images'], output_names=notes['outputs'])
    assert written is not None
    for graph in (written.model.graph, *(each.graph for each in written.model.functions.values())):
        for node in graph.all_nodes():  # Stack traces have the paths of files on this machine.
            node.metadata_props.clear()
            node.doc_string = None
    written.model.metadata_props[NOTES] = json.dumps(notes)
    written.save(path, external_data=False)


def _write_pt2(program: torch.export.ExportedProgram, path: Path, notes: Notes,
               opset: int) -> None:
    torch.export.save(program, path, extra_files={NOTES: json.dumps(notes)})


def onnx_runner(path: Path, inputs: Sequence[str] = ('images',)) -> Run:
    """Load an ONNX file on the CPU as a function of tensors, given in the order of ``inputs``."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    return lambda *args: [torch.from_numpy(np.asarray(each)) for each in session.run(
        None, {name: x.numpy() for name, x in zip(inputs, args, strict=True)})]


def pt2_runner(path: Path) -> Run:
    """Load an exported program as a function of tensors; it refuses sizes for which it does not
    hold."""
    return torch.export.load(path).module()
