"""What a pretrained ViT-S/14 owes to its position encoding: CamVid, linear heads, three sizes.

The table of the file is resized to the image, left out, or replaced by sin-cos positions; nothing
of the backbone is trained. For each encoding the features of all images are computed once
(bfloat16), then a linear head is fitted to them for every seed with one recipe. Heads are trained
at 336x252 and tested there, at 1.5 and at 2 times that size, against labels of 480x360. A file of
features and a run that are there are not made again.

    python tools/prepare_data.py pretrained
    python benchmarks/pretrained.py --data-root CAMVID [--encodings table none] [--seeds 0 1 2]
    python benchmarks/pretrained.py --data-root CAMVID --head stride7 --steps 455 --lr 1e-3
    python benchmarks/pretrained.py --report-only --table table.md
"""
from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from seeds import cell, markdown, seconds_cell
from torch import Tensor, nn

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.backbones import ViT
from mmposenc.necks import ConcatPyramid

ROOT = Path(__file__).resolve().parents[1]
ENCODINGS: dict[str, tuple[str, dict[str, Any] | None]] = {
    'table': ('its table, resized', dict(type='mmposenc.LearnedPositionEmbedding')),
    'none': ('none', None),
    'sincos': ('sin-cos in its place', dict(type='mmposenc.SinCosPositionEncoding'))}
HW, LABEL_HW, PATCH, DIMS, BLOCKS = (252, 336), (360, 480), 14, 384, (2, 5, 8, 11)
SCALES = (1.0, 1.5, 2.0)
CLASSES, BATCH, WARM_UP, NARROW = 11, 4, 50, 64
HEADS = {'linear': None, 'stride7': 2.0, 'stride14': 1.0}


def images(folder: Path, hw: tuple[int, int]) -> Iterator[Tensor]:
    """The pictures of a folder in the order of their names, normed as in training."""
    mean = torch.tensor([123.675, 116.28, 103.53]).view(3, 1, 1)
    std = torch.tensor([58.395, 57.12, 57.375]).view(3, 1, 1)
    for path in sorted(folder.glob('*.jpg')):
        picture = Image.open(path).convert('RGB').resize(hw[::-1], Image.Resampling.BILINEAR)
        yield (torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() - mean) / std


def labels(folder: Path) -> Tensor:
    """(N, H, W) with 255 where a pixel has no label; in the files that is 0."""
    maps = torch.stack([torch.from_numpy(np.array(Image.open(path))).long()
                        for path in sorted(folder.glob('*.png'))])
    return torch.where(maps == 0, 255, maps - 1)


def features(encoding: str, split: str, scale: float, args: argparse.Namespace) -> Tensor:
    """(N, blocks * DIMS, H, W) of a split at a size, out of a file where there is one."""
    path = args.work_dir / f'{encoding}_{split}{scale:g}.pt'
    if not path.is_file():
        config = ENCODINGS[encoding][1]
        backbone = ViT(
            'small', patch_size=PATCH, img_size=518, layer_scale_init_value=1.0, pool='cls',
            out_indices=BLOCKS, final_norm=False, pos_encoding=config, mask_padding=True,
            # Without the table its weights are left over.
            init_cfg=dict(type='Pretrained', checkpoint=str(args.weights),
                          strict=encoding == 'table'))
        backbone.init_weights()
        backbone.eval()
        start, outs = time.process_time(), []
        hw = (round(HW[0] * scale), round(HW[1] * scale))
        with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
            for image in images(args.data_root / 'images' / split, hw):
                outs.append(torch.cat(backbone(image[None]), 1).bfloat16())
        print(f'{path.name}: {time.process_time() - start:.0f} CPU s', flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.cat(outs), path)
    return torch.load(path, mmap=True)


class Head(nn.Module):
    """A norm for each block's map, and a linear layer; or between the two a neck of few channels.

    Args:
        scale: of the narrow head's map by the features': 2 is stride 7, 1 stride 14. None: linear.
    """

    def __init__(self, scale: float | None) -> None:
        super().__init__()
        dims, hidden = [DIMS] * len(BLOCKS), nn.Identity()
        if scale is None:
            self.neck = ConcatPyramid(dims)
        else:
            self.neck = ConcatPyramid(dims, NARROW, scales=(scale,))
            hidden = nn.Sequential(nn.Conv2d(NARROW, NARROW, 3, padding=1, bias=False),
                                   nn.GroupNorm(8, NARROW), nn.ReLU())
        self.hidden = hidden
        self.classify = nn.Conv2d(sum(dims) if scale is None else NARROW, CLASSES, 1)
        nn.init.normal_(self.classify.weight, std=0.01)
        nn.init.zeros_(self.classify.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.hidden(self.neck(x.split(DIMS, 1))[0]))


def fit(x: Tensor, y: Tensor, seed: int, args: argparse.Namespace) -> Head:
    """AdamW with warm-up and a cosine; labels at the images' size."""
    torch.manual_seed(seed)
    head, steps = Head(HEADS[args.head]), args.steps
    y = F.interpolate(y[:, None].float(), HW, mode='nearest')[:, 0].long()
    groups = [dict(params=[p for p in head.parameters() if p.dim() > 1], weight_decay=0.05),
              dict(params=[p for p in head.parameters() if p.dim() <= 1], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=args.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, (i + 1) / WARM_UP) * (
        0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * i / steps))))
    order: list[int] = []
    for _ in range(steps):
        if len(order) < BATCH:
            order = torch.randperm(len(x)).tolist()
        chosen = [order.pop() for _ in range(BATCH)]
        logits = head(torch.stack([x[i] for i in chosen]).float())
        loss = F.cross_entropy(F.interpolate(logits, HW, mode='bilinear'),
                               torch.stack([y[i] for i in chosen]), ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return head


@torch.no_grad()
def ious(head: Head, x: Tensor, y: Tensor) -> list[float]:
    """IoU of every class in percent, over all pixels of all images."""
    confusion = torch.zeros(CLASSES * CLASSES, dtype=torch.long)
    for i in range(0, len(x), BATCH):
        logits = head(x[i:i + BATCH].float())
        full = [side * PATCH for side in logits.shape[-2:]]
        logits = F.interpolate(F.interpolate(logits, full, mode='bilinear'), LABEL_HW,
                               mode='bilinear')
        known = y[i:i + BATCH] != 255
        pairs = y[i:i + BATCH][known] * CLASSES + logits.argmax(1)[known]
        confusion += torch.bincount(pairs, minlength=CLASSES ** 2)
    table = confusion.view(CLASSES, CLASSES)
    hits = table.diag()
    return (100 * hits / (table.sum(0) + table.sum(1) - hits).clamp(min=1)).tolist()


def run(encoding: str, seed: int, args: argparse.Namespace) -> None:
    """Fits one head and tests it at every size."""
    path = args.work_dir / f'{_name(encoding, args)}{seed}.json'
    if path.is_file():
        return
    x = features(encoding, 'training', 1.0, args)
    start = time.process_time()
    head = fit(x, labels(args.data_root / 'annotations' / 'training'), seed, args)
    seconds = time.process_time() - start
    y = labels(args.data_root / 'annotations' / 'validation')
    found = {f'{scale:g}': ious(head, features(encoding, 'validation', scale, args), y)
             for scale in SCALES}
    result = dict(steps=args.steps, lr=args.lr, train_cpu_seconds=seconds, ious=found)
    path.write_text(json.dumps(result, indent=1))
    print(encoding, seed, [f'{sum(each) / CLASSES:.1f}' for each in found.values()],
          f'{seconds:.0f} CPU s', flush=True)


def _name(encoding: str, args: argparse.Namespace) -> str:
    return f'{encoding}_{args.head}_{args.steps}_{args.lr:g}_seed'


def table(args: argparse.Namespace) -> str:
    """The results as markdown: mean and standard deviation over the seeds."""
    lines = [['Positions', 'Seeds', *(f'mIoU {scale:g}x' + (' (trained)' if scale == 1 else '')
                                      for scale in SCALES), 'Head, CPU s']]
    for encoding, (title, _) in ENCODINGS.items():
        runs = [json.loads(path.read_text())
                for path in sorted(args.work_dir.glob(f'{_name(encoding, args)}*.json'))]
        if runs:
            means = [[sum(each['ious'][f'{scale:g}']) / CLASSES for each in runs]
                     for scale in SCALES]
            lines.append([title, str(len(runs)), *map(cell, means), seconds_cell(runs)])
    return markdown(lines, text_columns=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--encodings', nargs='+', choices=ENCODINGS, default=list(ENCODINGS))
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--data-root', type=Path, default=ROOT / 'data' / 'camvid')
    parser.add_argument('--weights', type=Path,
                        default=ROOT / 'data' / 'pretrained' / 'vit-s14.safetensors')
    parser.add_argument('--work-dir', type=Path, default=ROOT / 'work_dirs' / 'pretrained')
    parser.add_argument('--head', choices=HEADS, default='linear')
    parser.add_argument('--steps', type=int, default=910)
    parser.add_argument('--lr', type=float, default=5e-3)
    parser.add_argument('--report-only', action='store_true', help='train nothing')
    parser.add_argument('--table', type=Path, help='write the table here, else only print it')
    args = parser.parse_args()
    for encoding in [] if args.report_only else args.encodings:
        for seed in args.seeds:
            run(encoding, seed, args)
    text = table(args)
    print(text)
    if args.table:
        args.table.write_text(text)


if __name__ == '__main__':
    main()
