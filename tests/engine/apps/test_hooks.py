"""Pictures of a classifier's test: names, folders and colours."""
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from helpers.tiny_data import Images
from mmpretrain.structures import DataSample

from mmposenc.engine.apps.hooks import VisualizationHook


def drawn(tmp_path: Path, inputs: Any, samples: list[DataSample], paths: list[str | None]
          ) -> dict[str, Any]:
    """The first pixel of each picture, by its name below the folder."""
    seen: dict[str, Any] = {}

    def visualize_cls(image: Any, sample: Any, *, out_file: str, **_: Any) -> None:
        seen[Path(out_file).relative_to(tmp_path).as_posix()] = image[0, 0].tolist()

    hook = VisualizationHook(str(tmp_path), 'mmpretrain')
    runner = SimpleNamespace(
        test_dataloader=SimpleNamespace(batch_size=4, dataset=Images(paths)),
        visualizer=SimpleNamespace(dataset_meta={}, visualize_cls=visualize_cls))
    hook.before_test_epoch(runner)
    hook.after_test_iter(runner, 2, dict(inputs=inputs), samples)
    return seen


def test_one_name_in_two_folders_and_colours(tmp_path) -> None:
    blue = torch.tensor([255, 0, 0], dtype=torch.uint8).view(3, 1, 1)  # files are loaded as BGR
    paths = ['data/val/cat/a b.jpg', 'data/val/dog/a b.jpg', 'data/val/dog/a b.png']
    samples = [DataSample(metainfo=dict(img_path=path)) for path in paths]
    assert drawn(tmp_path, [blue] * 3, samples, paths) == {
        'cat/a b.jpg': [0, 0, 255], 'dog/a b.jpg': [0, 0, 255], 'dog/a b_2.png': [0, 0, 255]}


def test_images_held_in_memory_and_several_views(tmp_path) -> None:
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)  # held as RGB
    grey = torch.full((1, 1, 1, 1), 7, dtype=torch.uint8)
    assert drawn(tmp_path, [red, red], [DataSample(metainfo=dict(sample_idx=5))],
                 [None] * 12) == {
        '5.png': [255, 0, 0]}
    assert drawn(tmp_path, [grey, grey], [DataSample()], [None] * 12) == {'8.png': [7, 7, 7]}
