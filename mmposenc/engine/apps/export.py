"""A detector, segmentor or classifier from an image tensor to its raw outputs."""
from __future__ import annotations

import bisect
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from torch import Tensor, nn

from mmposenc.checkpoint.integrity import put_in_place
from mmposenc.command_options import OPSET, TOLERANCE

from ..config.checks import check_checkpoint, check_folder
from ..config.models import (
    build_model,
    image_channels,
    image_samples,
    load_weights,
    preprocessor_config,
)
from ..config.testing import scope_of

#: Parts that no exported program can hold yet, by class name, and why.
REFUSED = {
    'MultiScaleDeformableAttention': 'deformable attention samples maps at places that it computes',
    'PPM': 'pooling to a fixed grid (PSPNet, UperNet) takes one size of images only; use '
           '--fixed-size',
}


class RawOutputs(nn.Module):
    """Images in, what the heads give out, before any threshold, suppression or resizing.

    Args:
        model: a model of mmdet, mmseg or mmpretrain, in evaluation.
        normalisation: (mean, standard deviation) of the channels, to be part of it; None: images
            come normalised.

    Images fill their batch: there is no padding. Detectors of one stage give maps of scores and
    boxes for each level, the family of DETR what its last layer says of each query, segmentors
    logits at the stride of their head, classifiers logits.
    """

    def __init__(self, model: nn.Module,
                 normalisation: tuple[Sequence[float], Sequence[float]] | None = None) -> None:
        super().__init__()
        self.model = model
        self.normalises = normalisation is not None
        for name, values in zip(('mean', 'std'), normalisation or ((), ()), strict=True):
            self.register_buffer(name, torch.tensor(list(values)).view(-1, 1, 1), persistent=False)
        self.queries = hasattr(model, 'forward_transformer')
        for module in model.modules():
            if type(module).__module__.startswith('mmseg') and type(module).__name__ == 'Upsample':
                module.forward = _Upsample(module)  # type: ignore[method-assign]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """(B, C, H, W) float32 to tensors, in the order of :meth:`names`."""
        return tuple(each for _, each in self._named(images))

    @torch.no_grad()
    def names(self, images: Tensor) -> list[str]:
        """Names of the outputs of such images."""
        return [name for name, _ in self._named(images)]

    def apart(self, images: Tensor, ours: Sequence[Tensor], others: Sequence[Tensor]
              ) -> Iterator[tuple[str, float]]:
        """By output, how far others' numbers are from ours: the largest difference over the span
        of ours, or their largest value where that is more."""
        for name, one, other in zip(self.names(images), ours, others, strict=True):
            size = float(max(one.max() - one.min(), one.abs().max())) or 1.0
            yield name, (float((one - other).abs().max()) / size if one.shape == other.shape
                         else float('inf'))

    def _normalised(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std if self.normalises else images

    def _named(self, images: Tensor) -> Iterator[tuple[str, Tensor]]:
        images = self._normalised(images)
        if self.queries:
            # While exporting there are no samples: images fill their batch.
            samples = None if torch.compiler.is_exporting() else image_samples(images)
            scores, boxes = self.model(images, samples, mode='tensor')[:2]
            found: Any = (scores[-1], boxes[-1])
        else:
            found = self.model(images, mode='tensor')
        if isinstance(found, Tensor):
            yield 'logits', found
            return
        for name, part in zip(('cls_score', 'bbox_pred', 'centerness'), found, strict=False):
            if isinstance(part, Tensor):
                yield name, part
            else:
                yield from ((f'{name}_{level}', each) for level, each in enumerate(part))


class Detections(RawOutputs):
    """One image in, its boxes out, as mmdet's ``predict`` gives them: (n, 4) in pixels of the
    input, their scores and labels (n,), best first.

    What is exported is mmdet's own code but for two steps: boxes below ``score_thr`` stay, with a
    score below 0, until :func:`suppress` takes those above it.

    Raises:
        ValueError: for a model whose head does not decode in mmdet's usual way.
    """

    def __init__(self, model: nn.Module, *args: Any) -> None:
        super().__init__(model, *args)
        head = getattr(model, 'bbox_head', None)
        single = getattr(type(head), '_predict_by_feat_single', None)
        if (single is None or hasattr(model, 'mask_head')
                or not hasattr(sys.modules[single.__module__], 'filter_scores_and_topk')):
            raise ValueError(f'--decode: {type(model).__name__} with {type(head).__name__} decodes '
                             f'in a way of its own; RetinaNet, FCOS, ATSS, GFL and their like can')
        kind = head.test_cfg.nms.get('type', 'nms')
        if kind != 'nms':
            raise ValueError(f"--decode: test_cfg.nms.type={kind!r} must be 'nms'")

    def apart(self, images: Tensor, ours: Sequence[Tensor], others: Sequence[Tensor]
              ) -> Iterator[tuple[str, float]]:
        """The largest distance of a box to the nearest of its label, in shares of the image's
        longer side, or that of their scores. One box in twenty is left out: of two that
        overlap and have the same score to rounding, each runtime may keep another."""
        (boxes, scores, labels), (others_boxes, others_scores, others_labels) = ours, others
        far = torch.maximum(
            (boxes[:, None] - others_boxes).abs().amax(-1) / max(images.shape[-2:]),
            (scores[:, None] - others_scores).abs())
        far = far.masked_fill(labels[:, None] != others_labels, float('inf'))
        if len(boxes) != len(others_boxes) and 0 in far.shape:
            yield 'the number of boxes', float('inf')
        elif len(boxes):
            nearest = torch.cat((far.amin(0), far.amin(1))).sort().values
            yield 'a box', float(nearest[-1 - len(nearest) // 20])

    def _named(self, images: Tensor) -> Iterator[tuple[str, Tensor]]:
        head: Any = self.model.bbox_head
        features = self.model.extract_feat(self._normalised(images))  # type: ignore[operator]
        sample = SimpleNamespace(metainfo=dict(img_shape=tuple(images.shape[-2:])))
        with _exportable(head) if torch.compiler.is_exporting() else nullcontext():
            found, = head.predict(features, [sample])
        yield from (('boxes', found.bboxes), ('scores', found.scores), ('labels', found.labels))


class _Found(SimpleNamespace):
    """mmdet's InstanceData, which makes numbers of lengths."""

    def __getitem__(self, index: Any) -> _Found:
        if isinstance(index, slice):  # the best, which suppress has taken
            return self
        return _Found(**{name: value[index] for name, value in vars(self).items()})

    def pop(self, name: str) -> Tensor:
        return vars(self).pop(name)  # type: ignore[no-any-return]


@contextmanager
def _exportable(head: Any) -> Iterator[None]:
    """Puts what can be exported in the place of mmdet's functions, where a head looks for them."""
    cfg, own = head.test_cfg, type(head.test_cfg)
    least = cfg.get('min_bbox_size', -1)

    def pick(scores: Tensor, threshold: float, most: int, results: dict[str, Tensor]) -> Any:
        flat = scores.flatten()
        kept, index = flat.topk(torch.sym_min(most, flat.shape[0]) if most > 0 else flat.shape[0])
        kept = torch.where(kept > threshold, kept, -1.0)
        box = index // scores.shape[1]
        return kept, index % scores.shape[1], box, {
            name: value[box] for name, value in results.items()}

    def best(boxes: Tensor, scores: Tensor, labels: Tensor, nms: dict[str, Any]) -> Any:
        if least >= 0:
            big = (boxes[:, 2:] - boxes[:, :2] > least).all(1)
            scores = torch.where(big, scores, -1.0)
        apart = 0 if nms.get('class_agnostic') else labels[:, None] * (boxes.max() + 1)
        keep = suppress(boxes + apart, scores, nms['iou_threshold'], cfg.max_per_img)
        return torch.cat((boxes[keep], scores[keep, None]), 1), keep

    ours = dict(filter_scores_and_topk=pick, batched_nms=best, InstanceData=_Found)
    modules = {sys.modules[base.__module__] for base in type(head).__mro__}
    before = [(module, name, getattr(module, name))
              for module in modules for name in ours if hasattr(module, name)]
    head.test_cfg = own({**cfg, 'min_bbox_size': -1})
    try:
        for module, name, _ in before:
            setattr(module, name, ours[name])
        yield
    finally:
        head.test_cfg = cfg
        for module, name, theirs in before:
            setattr(module, name, theirs)


@torch.library.custom_op('mmposenc::suppress', mutates_args=(), schema=(
    '(Tensor boxes, Tensor scores, float iou_threshold, int most) -> Tensor'))
def suppress(boxes: Tensor, scores: Tensor, iou_threshold: float, most: int) -> Tensor:
    """Numbers of the boxes with a score above 0 that non-maximum suppression keeps, best first."""
    raise NotImplementedError('a step of ONNX files; mmdet has its own')


@suppress.register_fake
def _numbers(boxes: Tensor, scores: Tensor, iou_threshold: float, most: int) -> Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.long)


class _Upsample:
    """mmseg's Upsample without ``int()``, which makes a number of a symbol."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        own: Any = self.module
        factors = own.scale_factor if isinstance(own.scale_factor, tuple) else (
            own.scale_factor,) * 2
        size = own.size or [side * int(factor) if factor == int(factor) else int(side * factor)
                            for side, factor in zip(x.shape[-2:], factors, strict=True)]
        return F.interpolate(x, size, None, own.mode, own.align_corners)


def refuse(model: nn.Module, fixed_size: bool) -> None:
    """Raise for a model that can't be exported, naming the part that is in the way.

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


# A trained model as an ONNX file or an exported program, checked before it is there.


#: What an ONNX file is written and checked with.
PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
#: Keys of what is noted in a file.
NOTES = 'mmposenc'

Run = Callable[..., Sequence[Tensor]]


class Exported(NamedTuple):
    """What was written.

    Attributes:
        path: the file.
        difference: the largest from the model itself, in shares of an output's size.
        sizes: (images, height, width) at which it was compared.
        notes: what the file says about itself.
    """

    path: Path
    difference: float
    sizes: list[tuple[int, int, int]]
    notes: dict[str, Any]


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
    path = _check(out, checkpoint, size, overwrite)
    if not 0 < tolerance < 1:
        raise ValueError(f'tolerance={tolerance} must be above 0 and below 1')
    if decode and path.suffix != '.onnx':
        raise ValueError(f'--decode: {path} must end in .onnx')
    model = build_model(cfg).eval()
    refuse(model, fixed_size)
    meta = {} if checkpoint is None else load_weights(model, checkpoint)
    statistics, notes = _normalisation(cfg, normalise)
    raw = (Detections if decode else RawOutputs)(model, statistics).eval()
    channels = image_channels(cfg)
    if not fixed_size:
        _check_example(raw, size, channels)
    example = torch.ones(1 if decode else 2, channels, *size)
    notes.update(task=scope_of(cfg), outputs=raw.names(example))
    if classes := (meta.get('dataset_meta') or {}).get('classes'):
        notes['classes'] = list(classes)
    program = _program(raw, example, fixed_size)
    notes.update(_limits(program))
    partial = path.with_name(f'{path.stem}.partial{path.suffix}')
    try:
        write = _write_onnx if path.suffix == '.onnx' else _write_pt2
        write(program, partial, notes, opset)
        sizes = [(images, *each) for each in _sizes(size, fixed_size, notes)
                 for images in ((1,) if decode else (1, 3))]
        reader = read_onnx if path.suffix == '.onnx' else read_pt2
        difference = _compare(raw, reader(partial), sizes, channels, 255.0 if normalise else 1.0,
                              tolerance)
        put_in_place(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return Exported(path, difference, sizes, notes)


def _check(out: str | Path, checkpoint: str | None, size: tuple[int, int], overwrite: bool) -> Path:
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
    check_folder(str(path.absolute().parent), 'OUT')
    if not path.absolute().parent.is_dir():
        raise ValueError(f'{path.absolute().parent} is no folder')
    if min(size) < 32:
        raise ValueError(f'size={size} must be at least (32, 32)')
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
    return path


def _check_example(raw: RawOutputs, size: tuple[int, int], channels: int) -> None:
    """Raises ValueError for an example with maps of one cell, which larger images have not: the
    graph would hold for one cell alone."""
    def single(size: tuple[int, int]) -> int:
        found = [0]

        def look(module: torch.nn.Module, args: Any, out: Any) -> None:
            for each in out if isinstance(out, (tuple, list)) else (out,):
                found[0] += isinstance(each, Tensor) and each.dim() == 4 and 1 in each.shape[2:]
        hooks = [module.register_forward_hook(look) for module in raw.model.modules()]
        try:
            raw.names(torch.ones(1, channels, *size))
        finally:
            for hook in hooks:
                hook.remove()
        return found[0]

    count, most = single(size), 4 * max(size)
    if not count or count == (always := single((most, most))):  # means over a map
        return
    least = bisect.bisect_left(range(most), -always, min(size),
                               key=lambda side: -single((side, side)))
    raise ValueError(f'size={size} is too small an example: the graph would hold for maps of one '
                     f'cell alone; it must be at least ({least}, {least}), or give --fixed-size')


def _normalisation(cfg: Config, inside: bool
                   ) -> tuple[tuple[list[float], list[float]] | None, dict[str, Any]]:
    """(mean, std) to put into the file, if asked to, and what the file says about its input."""
    own = preprocessor_config(cfg)
    mean, std = (list(own.get(name) or ()) for name in ('mean', 'std'))
    if inside and not mean:
        raise ValueError('--normalise: data_preprocessor of the config has no mean and std')
    channels = 'RGB' if own.get('bgr_to_rgb') or own.get('to_rgb') else 'BGR'
    notes = dict(input='pixels from 0 to 255' if inside else 'normalised', channels=channels,
                 mean=mean, std=std, pad_size_divisor=own.get('pad_size_divisor', 1))
    return ((mean, std) if inside else None), notes


def _program(raw: RawOutputs, example: Tensor, fixed_size: bool) -> torch.export.ExportedProgram:
    """The model as a graph. A size that the code makes a number of is an error, not a rule."""
    dynamic = torch.export.Dim.DYNAMIC
    shapes = {2: dynamic, 3: dynamic} if not fixed_size else {}
    if len(example) > 1:
        shapes[0] = dynamic
    with torch.no_grad():
        program = torch.export.export(raw, (example,), dynamic_shapes=(shapes,), strict=False)
    for node in program.graph.nodes:  # where files lie on this machine
        node.meta.pop('stack_trace', None)
    return program


def _limits(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """Smallest and largest height and width that the graph holds for; None: no limit."""
    images = next(node for node in program.graph.nodes
                  if node.op == 'placeholder' and node.name == 'images').meta['val']
    found: dict[str, list[int | None]] = {}
    for name, side in (('height', images.shape[2]), ('width', images.shape[3])):
        if isinstance(side, int):
            found[name] = [side, side]
            continue
        limits = program.range_constraints[side.node.expr]
        upper = limits.upper
        found[name] = [int(limits.lower), int(upper) if upper.is_Integer else None]
    return found


def _sizes(size: tuple[int, int], fixed: bool, notes: dict[str, Any]) -> list[tuple[int, int]]:
    """Sizes to compare at: that of the example and others, odd and lying ones among them, as far
    as the graph holds for them."""
    height, width = size
    if fixed:
        return [size]
    wanted = [size, (width + 1, height - 29), (height - 32, height - 32),
              (height // 2 + 3, width + 45), (height + 64, width // 2)]
    return [tuple(_within(side, notes[name]) for side, name in  # type: ignore[misc]
                  zip(each, ('height', 'width'), strict=True)) for each in wanted]


def _within(side: int, limits: list[int | None]) -> int:
    least, most = limits
    return max(side, least or 1) if most is None else min(max(side, least or 1), most)


def _write_onnx(program: torch.export.ExportedProgram, path: Path, notes: dict[str, Any],
                opset: int) -> None:
    """One file, weights inside."""
    from onnxscript import opset18 as op

    def suppressed(boxes, scores, iou_threshold: float, most: int):  # type: ignore[no-untyped-def]
        found = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(scores, [0, 1]), most,
                                     iou_threshold, 0.0)
        last = op.Slice(found, [2], [3], [1])  # type: ignore[type-var]
        return op.Reshape(last, [-1])

    made = torch.onnx.export(program, (), dynamo=True, verbose=False, opset_version=opset,
                             custom_translation_table={
                                 torch.ops.mmposenc.suppress.default: suppressed},
                             input_names=['images'], output_names=notes['outputs'])
    assert made is not None
    for graph in (made.model.graph, *(each.graph for each in made.model.functions.values())):
        for node in graph.all_nodes():  # as above
            node.metadata_props.clear()
            node.doc_string = None
    made.model.metadata_props[NOTES] = json.dumps(notes)
    made.save(path, external_data=False)


def _write_pt2(program: torch.export.ExportedProgram, path: Path, notes: dict[str, Any],
               opset: int) -> None:
    torch.export.save(program, path, extra_files={NOTES: json.dumps(notes)})


def read_onnx(path: Path, inputs: Sequence[str] = ('images',)) -> Run:
    """An ONNX file on the CPU, as a function of tensors, those of ``inputs`` in this order."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    return lambda *args: [torch.from_numpy(np.asarray(each)) for each in session.run(
        None, {name: x.numpy() for name, x in zip(inputs, args, strict=True)})]


def read_pt2(path: Path) -> Run:
    """An exported program; it refuses sizes that it does not hold for."""
    return torch.export.load(path).module()  # type: ignore[return-value]


@torch.no_grad()
def _compare(raw: RawOutputs, run: Run, sizes: list[tuple[int, int, int]], channels: int,
             scale: float, tolerance: float) -> float:
    """The largest difference in shares of an output's size.

    Raises:
        RuntimeError: it is beyond rounding.
    """
    worst = 0.0
    for images, height, width in sizes:
        batch = torch.randn(images, channels, height, width,
                            generator=torch.Generator().manual_seed(0))
        batch = batch if scale == 1.0 else (batch.abs() * scale / 4).clamp(max=scale)
        for name, found in raw.apart(batch, raw(batch), run(batch)):
            if not found <= tolerance:
                raise RuntimeError(f'{images} images of {height}x{width}: {name} is {found:.2g} of '
                                   f'its size away from what the model gives, more than '
                                   f'tolerance={tolerance:g}; the file is not kept')
            worst = max(worst, found)
    return worst
