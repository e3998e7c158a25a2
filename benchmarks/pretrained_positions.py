"""Other position encodings in a pretrained ViT-S/14, at larger images: the study pretrained-sizes.

The last blocks of the ViT (and all its encodings) are fine-tuned with a linear head on CamVid, at
182x238 pixels. Tests are at 1, 1.5 and 2 times these sides, which are two questions:

    enlarged    training and tests see whole pictures, and larger ones show the same things larger;
    scene       training sees parts of the pictures of 364x476 pixels, and larger test images show
                more of them, in the same scale.

A call goes on where the last one was, and prints the table of all runs.

    mmposenc prepare pretrained
    python benchmarks/pretrained_positions.py --data CAMVID --device cuda
"""
from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from mmengine.runner import set_random_seed
from torch import Tensor, nn
from torch.nn import functional as F

from mmposenc import engine
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.encodings import Entry, read_entries
from mmposenc.registry import MODELS

# isort: split
from mmseg.evaluation import IoUMetric  # after mmposenc, which lets it import

CONFIG = 'mmposenc::linear-vit-s14-camvid'
ENCODINGS = ('keep', 'none', 'none+rotary', 'none+fire', 'none+alibi', 'none+pape')
#: Of a picture, and of an image in training.
WHOLE, TRAINED = (364, 476), (182, 238)
SIZES = {1.0: TRAINED, 1.5: (266, 364), 2.0: WHOLE}
QUESTIONS = ('enlarged', 'scene')
CLASSES, IGNORED = 11, 255
#: Of a training: steps, images a step, and the last blocks that are trained.
STEPS, BATCH, BLOCKS = 400, 16, 6
Pictures = tuple[Tensor, Tensor]


def read(folder: Path, split: str, device: str) -> Pictures:
    """Pictures (N, 3, H, W) of bytes and their labels (N, H, W), 255 where there is none."""
    images, labels = [], []
    for path in sorted((folder / 'images' / split).glob('*.jpg')):
        image = cv2.imread(str(path))
        label = cv2.imread(str(folder / 'annotations' / split / f'{path.stem}.png'), -1)
        images.append(cv2.resize(image, WHOLE[::-1], interpolation=cv2.INTER_AREA)[..., ::-1])
        labels.append(cv2.resize(label, WHOLE[::-1], interpolation=cv2.INTER_NEAREST) - 1)
    return (torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous().to(device),
            torch.from_numpy(np.stack(labels)).to(device))


def sized(pictures: Pictures, size: tuple[int, int], question: str, corner: tuple[int, int]
          ) -> Pictures:
    """Pictures scaled down to a size, or the part of them that begins at ``corner``."""
    images, labels = pictures[0].float(), pictures[1]
    if question == 'scene':
        (top, left), (height, width) = corner, size
        images = images[..., top:top + height, left:left + width]
        labels = labels[..., top:top + height, left:left + width]
    elif size != WHOLE:
        images = F.interpolate(images, size, mode='bilinear', antialias=True)
        labels = F.interpolate(labels[:, None].float(), size, mode='nearest-exact')[:, 0].byte()
    mean = images.new_tensor([123.675, 116.28, 103.53])[:, None, None]
    std = images.new_tensor([58.395, 57.12, 57.375])[:, None, None]
    return (images - mean) / std, labels.long()


class Segmentor(nn.Module):
    """The backbone of an entry and a linear head on its last map."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        cfg = with_entry(ParsedConfig(engine.load_config(CONFIG)), entry).model.backbone
        cfg.update(out_indices=(11,), frozen_stages=12 - BLOCKS, mask_padding=False)
        self.backbone = MODELS.build(cfg)
        self.backbone.init_weights()
        self.head = nn.Sequential(nn.BatchNorm2d(384), nn.Conv2d(384, CLASSES, 1))

    def forward(self, images: Tensor) -> Tensor:
        return F.interpolate(self.head(self.backbone(images)[0]).float(), images.shape[-2:],
                             mode='bilinear')


@torch.no_grad()
def mean_iou(model: Segmentor, pictures: Pictures, size: tuple[int, int], question: str) -> float:
    """Percent; a scene is tested at the middle of the pictures."""
    corner = tuple((whole - side) // 2 for whole, side in zip(WHOLE, size, strict=True))
    areas = torch.zeros(4, CLASSES)
    for some in torch.arange(len(pictures[0]), device=pictures[0].device).split(16):
        images, labels = sized((pictures[0][some], pictures[1][some]), size, question, corner)
        with torch.autocast(images.device.type, torch.bfloat16):
            predicted = model(images).argmax(1)
        areas += torch.stack(IoUMetric.intersect_and_union(predicted, labels, CLASSES, IGNORED))
    return 100 * float((areas[0] / areas[1]).nanmean())


def train(entry: Entry, seed: int, question: str, device: str, data: dict[str, Pictures]
          ) -> dict[float, float]:
    """mIoU at each factor after one training."""
    set_random_seed(seed)
    model = Segmentor(entry).to(device)
    fast = [*model.head.parameters(), *(
        each for name, each in model.named_parameters() if 'rel_pos_encoding' in name)]
    slow = [each for each in model.backbone.parameters()
            if each.requires_grad and not any(each is other for other in fast)]
    optimizer = torch.optim.AdamW([dict(params=slow, lr=1e-4), dict(params=fast, lr=1e-3)],
                                  weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [1e-4, 1e-3], STEPS)
    for _ in range(STEPS):
        some = torch.randint(len(data['training'][0]), (BATCH,), device=device)
        corner = tuple(int(torch.randint(whole - side + 1, ())) for whole, side in
                       zip(WHOLE, TRAINED, strict=True))
        images, labels = sized((data['training'][0][some], data['training'][1][some]), TRAINED,
                               question, corner)
        if torch.rand(()) < 0.5:
            images, labels = images.flip(-1), labels.flip(-1)
        with torch.autocast(device, torch.bfloat16):
            logits = model(images)
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    return {factor: mean_iou(model, data['validation'], size, question)
            for factor, size in SIZES.items()}


def table(folder: Path) -> None:
    """Mean and standard deviation over seeds of all runs of a folder."""
    print('| question | encoding | seeds | ' + ' | '.join(f'mIoU at {each:g}' for each in SIZES)
          + ' |\n|---' + '|---' * (2 + len(SIZES)) + '|')
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob('*.json'))]
    for question, name in sorted({(run['question'], run['encoding']) for run in runs}):
        values = [run['mIoU'] for run in runs
                  if (run['question'], run['encoding']) == (question, name)]
        cells = []
        for factor in SIZES:
            found = [each[str(factor)] for each in values]
            spread = f' ± {statistics.stdev(found):.1f}' if len(found) > 1 else ''
            cells.append(f'{statistics.mean(found):.1f}{spread}')
        print(f'| {question} | {name} | {len(values)} | {" | ".join(cells)} |')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--data', type=Path, required=True, help='CamVid: images/, annotations/')
    parser.add_argument('--encodings', nargs='+', default=ENCODINGS)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cpu')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/evidence/pretrained-sizes'))
    args = parser.parse_args()
    MMLogger.get_instance('mmengine', log_level='ERROR')
    init_default_scope('mmseg')
    torch.set_num_threads(1)
    data = {split: read(args.data, split, args.device) for split in ('training', 'validation')}
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        for question in QUESTIONS:
            for entry in read_entries(args.encodings):
                path = args.out / f'{question}-{entry.slug}-{seed}.json'
                if path.is_file():
                    continue
                ious = train(entry, seed, question, args.device, data)
                path.write_text(json.dumps(dict(encoding=entry.name, question=question, seed=seed,
                                                mIoU=ious)))
                print(question, entry.name, seed, [f'{each:.2f}' for each in ious.values()],
                      flush=True)
    table(args.out)


if __name__ == '__main__':
    main()
