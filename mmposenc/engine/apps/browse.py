"""Pictures of training images after the pipeline of their data set."""
from __future__ import annotations

from pathlib import Path

from mmengine.config import Config
from mmengine.dataset import RepeatDataset
from mmengine.runner import set_random_seed
from mmengine.structures import BaseDataElement

from ...writing import check_new_files, writing_picture
from ..config.checked_classes import build_data_set
from ..config.checks import check_files, check_sections
from ..config.parsed import ParsedConfig
from .pictures import draw_sample, names_without_suffix, rgb_bytes_of_loaded, visualizer_of


def browse(cfg: Config, output_dir: str | Path, *, phase: str = 'train', number: int = 20,
           seed: int | None = 0) -> list[Path]:
    """Draws the images of a data set as its pipeline gives them, with their ground truth, so that
    flips, crops and mosaics show.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        output_dir: where the pictures go, under the names and folders of the images.
        phase: 'train', 'val' or 'test': which data set.
        number: how many images, spread evenly over the data set; -1 for all. A repeated one
            counts once.
        seed: the seed of the augmentations; None for new ones in every call.

    Returns:
        The files written.

    Raises:
        ValueError: a phase that the config does not have, a number that can't be, a folder that
            can't be written to, or in which a file of the user's has the name of a picture.
        FileNotFoundError: files that the config names are not there.
    """
    parsed = ParsedConfig(cfg)
    scope = parsed.library
    if phase not in ('train', 'val', 'test') or not cfg.get(f'{phase}_dataloader'):
        raise ValueError(f"phase={phase!r}: the config has no {phase}_dataloader; use 'train', "
                         "'val' or 'test'")
    if number < 1 and number != -1:
        raise ValueError(f'number={number} must be at least 1, or -1 for all')
    data = parsed.folders_of_data(phase)
    check_new_files(output_dir, (), 'output_dir', data=data)
    check_sections(parsed, ())
    check_files(parsed, (phase,))
    if seed is not None:
        set_random_seed(seed)
    dataset = build_data_set(cfg, phase)
    visualizer = visualizer_of(scope, dataset.metainfo)
    # Of a data set that is repeated, the same image would be met again and again.
    length = len(dataset.dataset if isinstance(dataset, RepeatDataset) else dataset)
    total = length if number < 0 else min(number, length)
    # Spread over the data set, because files are often sorted: the first ones may all show one
    # class or scene.
    numbers = [i * length // total for i in range(total)]
    names = names_without_suffix([dataset.get_data_info(number).get('img_path') or str(number)
                                  for number in numbers])
    check_new_files(output_dir, (f'{name}.png' for name in names), 'output_dir', data=data)
    written: list[Path] = []
    for index, name in zip(numbers, names, strict=True):
        item, path = dataset[index], Path(output_dir, f'{name}.png')
        sample = item['data_samples']
        if scope == 'mmdet':
            _make_boxes_and_masks_drawable(sample)
        pixels = rgb_bytes_of_loaded(item['inputs'].permute(1, 2, 0).numpy())
        with writing_picture(path) as partial:
            draw_sample(scope, visualizer, pixels, sample, truth=True, predicted=False,
                        out_file=str(partial))
        written.append(path)
    return written


def _make_boxes_and_masks_drawable(sample: BaseDataElement) -> None:
    """Convert boxes and masks for mmdet's visualizer, which takes tensors and boolean arrays."""
    from mmdet.models.utils import mask2ndarray
    instances = sample.gt_instances
    if hasattr(instances.get('bboxes'), 'tensor'):
        instances.bboxes = instances.bboxes.tensor
    if 'masks' in instances:
        instances.masks = mask2ndarray(instances.masks).astype(bool)
