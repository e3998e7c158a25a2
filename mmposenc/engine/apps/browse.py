"""Pictures of the network's input, after augmentation, padding and normalisation."""
from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.model import BaseDataPreprocessor
from mmengine.registry import MODELS, VISUALIZERS, init_default_scope
from mmengine.runner import set_random_seed
from mmengine.structures import BaseDataElement

from ..config.checks import check_drawings_replace_no_images, check_files, check_sections
from ..config.models import preprocessor_config
from ..config.nodes import build_data_set
from ..config.testing import VISUALIZERS_OF, scope_of
from .image_names import paths_and_names
from .pictures import draw_sample, rgb_bytes_of_loaded


def browse(cfg: Config, output_dir: str | Path, *, phase: str = 'train', number: int = 20,
           seed: int | None = 0) -> list[Path]:
    """Draws the images of a data set as the network sees them, with their ground truth.

    The images pass through the pipeline and, batch by batch, through the model's data
    preprocessor; then only the normalisation is undone. So flips, crops, mosaics, padding and
    swapped colour channels all show.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        output_dir: where the pictures go, under the names and folders of the images.
        phase: 'train', 'val' or 'test': which data set, and the preprocessor's mode.
        number: how many images, spread evenly over the data set; -1 for all.
        seed: of the augmentations; None for new ones in every call.

    Returns:
        The files written.

    Raises:
        ValueError: a phase that the config does not have, a number or seed that can't be, a folder
            that can't be written to.
        FileNotFoundError: files that the config names are not there.
    """
    scope, loader = scope_of(cfg), cfg.get(f'{phase}_dataloader')
    if phase not in ('train', 'val', 'test') or not loader:
        raise ValueError(f"phase={phase!r}: the config has no {phase}_dataloader; use 'train', "
                         "'val' or 'test'")
    if number < 1 and number != -1:
        raise ValueError(f'number={number} must be at least 1, or -1 for all')
    if seed is not None and not 0 <= seed < 2 ** 32:
        raise ValueError(f'seed={seed} must be from 0 to {2 ** 32 - 1}')
    check_drawings_replace_no_images(cfg, phase, str(output_dir), 'output_dir')
    check_sections(cfg, ())
    check_files(cfg, (phase,))
    init_default_scope(scope)
    if seed is not None:
        set_random_seed(seed)
    dataset = build_data_set(loader.dataset)
    preprocessor = MODELS.build(preprocessor_config(cfg))
    visualizer = VISUALIZERS.build({'type': VISUALIZERS_OF[scope], **(cfg.get('visualizer') or {}),
                                    'name': 'browse', 'vis_backends': None})
    visualizer.dataset_meta = dataset.metainfo
    batch = loader.get('batch_size') or 1
    total = len(dataset) if number < 0 else min(number, len(dataset))
    Path(output_dir).mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    # Spread over the data set, because files are often sorted: the first ones may all show one
    # class or scene.
    numbers = [i * len(dataset) // total for i in range(total)]
    names, items = paths_and_names(dataset, numbers), (dataset[number] for number in numbers)
    while chunk := list(islice(items, batch)):
        data = preprocessor(pseudo_collate(chunk), training=phase == 'train')
        for image, sample in zip(data['inputs'], data['data_samples'], strict=True):
            path = Path(output_dir, f'{names[len(written)][1]}.png')
            pixels, sample = rgb_bytes_of_input(image, preprocessor), sample.cpu()
            if scope == 'mmdet':
                _make_boxes_and_masks_drawable(sample, pixels.shape[:2])
            draw_sample(scope, visualizer, path.stem, pixels, sample, truth=True, predicted=False,
                        out_file=str(path))
            written.append(path)
    return written


def rgb_bytes_of_input(image: torch.Tensor, preprocessor: BaseDataPreprocessor) -> np.ndarray:
    """Undo the normalisation: from (C, H, W) as the network gets it to RGB bytes (H, W, 3). One
    channel becomes grey; of more than three, the first three are taken."""
    image = image.detach().cpu().float()
    if getattr(preprocessor, '_enable_normalize', False):
        image = image * preprocessor.std.cpu() + preprocessor.mean.cpu()
    pixels = rgb_bytes_of_loaded(image.round().permute(1, 2, 0).numpy())
    to_rgb = getattr(preprocessor, '_channel_conversion', getattr(preprocessor, 'to_rgb', False))
    return np.ascontiguousarray(pixels[..., ::-1]) if to_rgb else pixels


def _make_boxes_and_masks_drawable(sample: BaseDataElement, hw_shape: tuple[int, int]) -> None:
    """Convert boxes and masks for mmdet's visualizer. It takes tensors, and boolean arrays as large
    as the image; mmdet's masks end where the padding starts."""
    from mmdet.models.utils import mask2ndarray
    instances = sample.gt_instances
    boxes = instances.get('bboxes')
    if boxes is not None and hasattr(boxes, 'tensor'):
        instances.bboxes = boxes.tensor
    masks = instances.get('masks')
    if masks is not None:
        masks = mask2ndarray(masks).astype(bool)
        below, right = hw_shape[0] - masks.shape[1], hw_shape[1] - masks.shape[2]
        instances.masks = np.pad(masks, ((0, 0), (0, below), (0, right)))
