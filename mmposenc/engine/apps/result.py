"""What a model predicts for a picture."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer
from PIL import Image

from ...writing import writing_picture
from ..prepare.labels import PICTURES
from .pictures import draw_sample, label_map

#: The number of a classifier's classes that are listed.
TOP = 5


class Result:
    """What was predicted for a picture.

    Args:
        file: its name.
        picture: (H, W, 3) RGB bytes.
        sample: the model's, on the CPU.
        scope: 'mmdet', 'mmseg' or 'mmpretrain'.
        score_thr: boxes must score more.
        visualizer: the visualizer of that library; its dataset_meta has the classes.

    Attributes:
        file, picture: as above.
        labels: (N,) whole numbers: of boxes; of segmentation those that cover the picture, the
            largest first; of classification the five best.
        names: what these N are called.
        scores: (N,) of boxes and classes; the share of the picture that each class covers.
        boxes: (N, 4) left, top, right, bottom in pixels; None but in detection.
        masks: those of objects (N, H, W), true inside; in segmentation the label map (H, W) of
            integers; else None.

    Raises:
        ValueError: the model predicts none of boxes, label map and classes, or numbers that are
            not finite.
    """

    def __init__(self, file: str, picture: np.ndarray, sample: BaseDataElement, scope: str,
                 score_thr: float, visualizer: Visualizer) -> None:
        self.file, self.picture = file, picture
        self._sample, self._scope, self._score_thr = sample, scope, score_thr
        self._visualizer = visualizer
        self.boxes = self.masks = None
        if 'pred_instances' in sample:
            instances = sample.pred_instances[sample.pred_instances.scores > score_thr]
            self.labels, self.scores = instances.labels.numpy(), instances.scores.numpy()
            self.boxes = np.asarray(getattr(instances.bboxes, 'tensor', instances.bboxes))
            if 'masks' in instances:
                self.masks = np.asarray(instances.masks, bool)
        elif 'pred_sem_seg' in sample:
            self.masks = label_map(sample)
            labels, counts = np.unique(self.masks, return_counts=True)
            order = np.argsort(-counts, kind='stable')
            self.labels, self.scores = labels[order], counts[order] / self.masks.size
        elif 'pred_score' in sample:
            best = sample.pred_score.topk(min(TOP, len(sample.pred_score)))
            self.labels, self.scores = best.indices.numpy(), best.values.numpy()
        else:
            raise ValueError(f'the model predicts {", ".join(sample.keys()) or "nothing"}: known '
                             'are boxes (pred_instances), label maps (pred_sem_seg) and classes '
                             '(pred_score)')
        for numbers in (self.scores, self.boxes):
            if numbers is not None and not np.isfinite(numbers).all():
                raise ValueError('the model predicts numbers that are not finite; take a '
                                 'checkpoint from before the training diverged')
        classes: Sequence[str] = visualizer.dataset_meta['classes']
        self.names = [classes[label] if label < len(classes) else 'none' for label in self.labels]

    def record(self) -> dict[str, Any]:
        """The prediction as JSON, without the label map."""
        height, width = self.picture.shape[:2]
        record = {'file': self.file, 'width': width, 'height': height,
                  'labels': self.labels.tolist(), 'names': self.names,
                  'scores': self.scores.tolist()}
        if self.boxes is not None:
            record['boxes'] = self.boxes.tolist()
            if self.masks is not None:
                from mmdet.structures.mask import encode_mask_results

                record['masks'] = [{'size': list(code['size']), 'counts': code['counts'].decode()}
                                   for code in encode_mask_results(self.masks)]
        return record

    def draw(self) -> np.ndarray:
        """Draw the prediction on the picture with the library's visualizer: (H, W, 3) RGB bytes."""
        draw_sample(self._scope, self._visualizer, self.picture, self._sample, truth=False,
                    predicted=True, score_thr=self._score_thr)
        drawn: np.ndarray = self._visualizer.get_image()
        return drawn

    def save(self, path: str | Path) -> Path:
        """Write the drawn picture; the file's ending gives the format.

        Raises:
            ValueError: another ending than those of pictures.
        """
        path = Path(path)
        if path.suffix.lower() not in PICTURES:
            raise ValueError(f'path={str(path)!r} must end in one of {", ".join(PICTURES)}')
        with writing_picture(path) as partial:
            mmcv.imwrite(self.draw()[..., ::-1], str(partial))
        return path

    def _repr_png_(self) -> bytes | None:
        """Give a notebook the drawn picture when a result is the last line of a cell."""
        data: bytes | None = Image.fromarray(self.draw())._repr_png_()
        return data

    def __repr__(self) -> str:
        parts = [f'{name} {score:.2f}' for name, score in zip(self.names, self.scores, strict=True)]
        more = f', and {len(parts) - 5} more' if len(parts) > 5 else ''
        return f'Result({self.file}: {", ".join(parts[:5]) or "nothing"}{more})'
