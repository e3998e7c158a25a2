"""Pictures and frames as a model takes them: its test pipeline without annotations."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import cv2
import numpy as np
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import TRANSFORMS

from .drawing import rgb_bytes
from .models import image_channels
from .pictures import Source, Video


class Item(NamedTuple):
    """A picture or a frame that was loaded.

    Attributes:
        source: the file.
        about: what json says of it: file, width, height; frame and seconds.
        pixels: (H, W, 3) RGB bytes.
        packed: the model's input.
        rate: frames a second of its video; 0 of a picture.
    """

    source: Source
    about: dict[str, Any]
    pixels: np.ndarray
    packed: dict[str, Any]
    rate: float = 0.0


class Reader:
    """Files to inputs of the model, through the config's own steps.

    Args:
        cfg: with a test_dataloader.

    Raises:
        ValueError: its pipeline reads pictures in another way than from files.
    """

    def __init__(self, cfg: Config) -> None:
        dataset = cfg.test_dataloader.dataset
        while 'pipeline' not in dataset and 'dataset' in dataset:
            dataset = dataset.dataset
        steps = [step for step in deepcopy(list(dataset.get('pipeline') or []))
                 if 'Annotation' not in str(step.get('type'))]
        # Data sets such as CIFAR hold their pictures in memory, as RGB or as grey.
        self.held = not steps or not _plain(steps[0]).startswith('Load')
        grey = {'color_type': 'grayscale'} if image_channels(cfg) == 1 else {}
        loading = grey if self.held else dict(steps.pop(0))
        if not self.held and _plain(loading) != 'LoadImageFromFile':
            raise ValueError(f'the test pipeline begins with {loading["type"]!r}: predict reads '
                             'pictures by LoadImageFromFile')
        # This project's tells a file that is cut short; of a whole one it gives the same pixels.
        self.load = TRANSFORMS.build({**loading, 'type': 'mmposenc.LoadImageFromFile',
                                      'ignore_empty': False})
        self.steps = Compose(steps)

    def items(self, sources: list[Source], passed_over: Callable[[Source, Exception], None]
              ) -> Iterator[Item]:
        """Every picture and frame that can be read.

        Args:
            sources: files, in this order.
            passed_over: called with each file that can't be read, and why.
        """
        for source in sources:
            try:
                yield from self._frames(source) if source.is_video else [self._picture(source)]
            except Exception as error:  # decoders and transforms raise what they like
                passed_over(source, error)

    def _picture(self, source: Source) -> Item:
        loaded = self.load({'img_path': str(source.path), 'img_id': 0})
        return self._item(source, {'file': source.file}, loaded)

    def _frames(self, source: Source) -> Iterator[Item]:
        video = Video(source.path)
        for number, frame in enumerate(video):
            if self.load.color_type == 'grayscale':
                frame = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
            if self.load.to_float32:
                frame = frame.astype(np.float32)
            loaded = {'img_path': str(source.path), 'img_id': number, 'img': frame,
                      'img_shape': frame.shape[:2], 'ori_shape': frame.shape[:2]}
            about = {'file': source.file, 'frame': number, 'seconds': number / video.rate}
            yield self._item(source, about, loaded, rate=video.rate)

    def _item(self, source: Source, about: dict[str, Any], loaded: dict[str, Any],
              rate: float = 0.0) -> Item:
        image = loaded['img']
        pixels = rgb_bytes(image)
        if self.held and image.ndim == 3:
            loaded['img'] = np.ascontiguousarray(image[..., ::-1])
        height, width = image.shape[:2]
        return Item(source, {**about, 'width': width, 'height': height}, pixels,
                     self.steps(loaded), rate)


def _plain(step: Any) -> str:
    return str(step.get('type')).rpartition('.')[2]


def batches(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Up to ``size`` neighbours whose inputs have one shape."""
    batch: list[Item] = []
    for item in items:
        if batch and (len(batch) == size
                      or item.packed['inputs'].shape != batch[0].packed['inputs'].shape):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
