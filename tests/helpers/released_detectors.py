"""Random weights and images that golden numbers of RT-DETR, D-FINE and RF-DETR are of."""
import json
import lzma
import math

import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

from helpers.golden_files import GOLDEN_DIR

#: Of the images.
SIZES = ((96, 96), (64, 160))


def names_in(file: str) -> dict:
    """A golden file of names and shapes."""
    data = (GOLDEN_DIR / file).read_bytes()
    return json.loads(lzma.decompress(data) if file.endswith('.xz') else data)


def drawn_weights(shapes: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    """Random weights under these names. Norms are around 1, so are factors of HGNetV2; of D-FINE's
    bins ``up`` is around 0.6 and ``reg_scale`` around 3."""
    rng, weights = np.random.RandomState(0), {}  # Its numbers are the same everywhere.
    for name, shape in sorted(shapes.items()):
        module, _, kind = name.rpartition('.')
        numbers = torch.from_numpy(rng.standard_normal(shape))
        of_norm = len(shapes.get(f'{module}.weight', ())) == 1
        if of_norm or kind in ('scale', 'up', 'reg_scale'):
            mean = {'up': 0.6, 'reg_scale': 3.0, 'bias': 0.0, 'running_mean': 0.0}.get(kind, 1.0)
            numbers = 0.2 * numbers + mean
            weights[name] = numbers.abs() if kind == 'running_var' else numbers
        else:
            weights[name] = numbers * (math.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.3)
    return weights


def drawn_images(size: tuple[int, int]) -> torch.Tensor:
    """Two images."""
    return torch.from_numpy(np.random.RandomState(size[1]).randint(
        0, 256, (2, 3, *size))).double() / 255


def samples(size: tuple[int, int]) -> list[DetDataSample]:
    """Two objects in the first image and one in the second."""
    boxes = torch.tensor([[0.4, 0.5, 0.3, 0.4], [0.7, 0.3, 0.2, 0.25], [0.3, 0.6, 0.5, 0.3]],
                         dtype=torch.float64)
    corners = torch.cat((boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2), 1)
    corners *= torch.tensor([*size[::-1], *size[::-1]])
    found = []
    for part, labels in ((slice(0, 2), [2, 0]), (slice(2, 3), [0])):
        sample = DetDataSample(metainfo=dict(img_shape=size, batch_input_shape=size))
        sample.gt_instances = InstanceData(bboxes=corners[part], labels=torch.tensor(labels))
        found.append(sample)
    return found


def outcome(model: torch.nn.Module, state: dict[str, torch.Tensor], size: tuple[int, int]
            ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Scores and boxes of all layers, and then the losses, of a model with these weights on images
    of a size."""
    images = drawn_images(size)
    model.load_state_dict(state)
    with torch.no_grad():
        logits, boxes = model.eval()(images, samples(size), mode='tensor')[:2]
    return logits, boxes, model.train()(images, samples(size), mode='loss')


def drawn(of_corners, of_others, x, *args, dtype=None):
    """In the place of random numbers for denoising: for each corner its own."""
    return torch.tensor(of_corners if x.shape[-1:] == (4,) else [of_others],
                        dtype=dtype or x.dtype).expand(x.shape).clone()
