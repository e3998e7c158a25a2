"""What pretrained.py is made of: CamVid, a ViT cut in two behind a block, linear heads, and IoU."""
from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.backbones import ViT
from mmposenc.encodings import PEG, SinCosPositionEncoding
from mmposenc.necks import ConcatPyramid

#: The model whose weights are loaded, and the blocks whose maps the head reads.
VIT_S14: dict[str, Any] = dict(arch='small', patch_size=14, img_size=518, embed_dims=384,
                               layer_scale_init_value=1.0)
BLOCKS, CLASSES, BATCH, LABEL_HW = (2, 5, 8, 11), 11, 4, (360, 480)
WARM_UP, NARROW = 50, 64
#: Size of a narrow head's map by the features': 2 is stride 7; None: the linear head.
HEADS = {'linear': None, 'stride7': 2.0, 'stride14': 1.0}


class ScaledSinCos(SinCosPositionEncoding):
    """Sines and cosines of the size of this ViT-S/14's table, 0.0102 (patches have 0.12, and
    unscaled ones 0.7)."""

    scale = 0.0102 * math.sqrt(2)

    def _table(self, *args: Any) -> Tensor:
        return self.scale * super()._table(*args)


class LatePEG(PEG):
    """Where only the last four blocks are trained: in front of them."""

    default_positions = (7,)


class Encoding(NamedTuple):
    """What a pretrained model is given: ``fixed`` without parameters to train, behind which block
    tokens may be kept; ``peg`` and ``irpe`` start at zero and are trained."""

    title: str
    fixed: str
    peg: bool = False
    irpe: bool = False

    @property
    def has_parameters(self) -> bool:
        return self.peg or self.irpe


ENCODINGS = {
    'table': Encoding('its table, resized', 'table'),
    'none': Encoding('none', 'none'),
    'sincos': Encoding("sin-cos of the table's size in its place", 'sincos'),
    'sincos-unit': Encoding('sin-cos of size 1 in its place', 'sincos-unit'),
    'rope': Encoding('RoPE in its place', 'rope'),
    'rope-slow': Encoding('RoPE with theta 10,000 in its place', 'rope-slow'),
    'peg': Encoding('PEG in its place', 'none', peg=True),
    'irpe': Encoding('iRPE-k in its place', 'none', irpe=True),
    'table+peg': Encoding('table and PEG', 'table', peg=True),
    'table+irpe': Encoding('table and iRPE-k', 'table', irpe=True)}
_TOKENS: dict[str, Any] = {
    'table': 'mmposenc.LearnedPositionEmbedding', 'sincos': ScaledSinCos,
    'sincos-unit': 'mmposenc.SinCosPositionEncoding'}
_ROTARY = {'rope': 100.0, 'rope-slow': 10000.0}


def build(name: str, start: int, weights: Path, model: dict[str, Any]) -> ViT:
    """The backbone with an encoding, of which blocks from ``start`` on are trained (12: none) and,
    where it has parameters, the encoding in those that are run again, which are all for 0."""
    encoding = ENCODINGS[name]
    tokens = [dict(type=_TOKENS[encoding.fixed])] if encoding.fixed in _TOKENS else []
    relative: dict[str, Any] | None = None
    if encoding.fixed in _ROTARY:
        relative = dict(type='mmposenc.RotaryEmbedding2D', theta=_ROTARY[encoding.fixed])
    trainable = []
    if encoding.peg:
        tokens.append(dict(type=LatePEG if start else 'mmposenc.PEG', zero_init=True))
        trainable.append(f'pos_encodings.at.after{7 if start else 0}')
    if encoding.irpe:
        relative = dict(type='mmposenc.IRPE', rpe_on='k')
        if not start:
            trainable.append('rel_pos_encoding')
    backbone = ViT(**model, pool='cls', out_indices=BLOCKS, final_norm=False, pos_encoding=tokens,
                   rel_pos_encoding=relative, frozen_stages=start or 12, trainable=trainable,
                   # Without the table its weights are left over.
                   init_cfg=dict(type='Pretrained', checkpoint=str(weights),
                                 strict=encoding.fixed == 'table'))
    backbone.init_weights()
    return backbone


def walk(backbone: ViT, x: Tensor, hw: tuple[int, int], first: int, last: int
         ) -> tuple[Tensor, list[Tensor]]:
    """Tokens behind block ``last`` before the encodings there, and the maps on the way; from the
    tokens behind block ``first`` before those there (-1: of the patches)."""
    maps = []
    for position in range(first, last + 1):
        if position > first:
            x = backbone.blocks[position](x, hw, None, None)
        if position == last < len(backbone.blocks) - 1:
            break
        x, _, _ = backbone.pos_encodings(x, hw, position, num_prefix_tokens=1, padding_mask=None)
        if position in BLOCKS:
            maps.append(x[:, 1:])
    return x, maps


def images(folder: Path, hw: tuple[int, int], every: int) -> Iterator[Tensor]:
    """Each ``every``-th picture of a folder in the order of their names, normed as in training."""
    mean = torch.tensor([123.675, 116.28, 103.53]).view(3, 1, 1)
    std = torch.tensor([58.395, 57.12, 57.375]).view(3, 1, 1)
    for path in sorted(folder.glob('*.jpg'))[::every]:
        picture = Image.open(path).convert('RGB').resize(hw[::-1], Image.Resampling.BILINEAR)
        yield (torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() - mean) / std


def labels(folder: Path, every: int) -> Tensor:
    """(N, H, W) with 255 where a pixel has no label; in the files that is 0."""
    maps = torch.stack([torch.from_numpy(np.array(Image.open(path))).long()
                        for path in sorted(folder.glob('*.png'))[::every]])
    return torch.where(maps == 0, 255, maps - 1)


def keep(make: Callable[[], ViT], pictures: Iterator[Tensor], start: int, path: Path) -> Tensor:
    """What blocks before ``start`` make of all images, in bfloat16, out of a file where there is
    one: (N, maps + 1, 1 + H*W, C), maps with a row of zeros in the class token's place."""
    if not path.is_file():
        backbone = make().eval()
        began, outs = time.process_time(), []
        with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
            for image in pictures:
                patches, hw = backbone.patch_embed(image[None])
                x = torch.cat([backbone.cls_token, patches], 1)
                x, maps = walk(backbone, x, hw, -1, start - 1)
                rows = [F.pad(each, (0, 0, 1, 0)) for each in maps[:sum(
                    block < start - 1 for block in BLOCKS)]]
                outs.append(torch.stack([*rows, x], 1).bfloat16())
        print(f'{path.name}: {time.process_time() - began:.0f} CPU s', flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.cat(outs), path.with_suffix('.part'))
        path.with_suffix('.part').rename(path)
    return torch.load(path, mmap=True)


class Model(nn.Module):
    """What follows the kept tokens: blocks from ``start`` on, a norm for each map, and a linear
    layer, or between the two a neck of few channels.

    Args:
        start: 12 runs no block again, and so needs no backbone.
        scale: one of HEADS.
    """

    def __init__(self, backbone: ViT | None, start: int, dims: int, scale: float | None) -> None:
        super().__init__()
        self.backbone, self.start = backbone, start
        channels, hidden = [dims] * len(BLOCKS), nn.Identity()
        if scale is None:
            self.neck = ConcatPyramid(channels)
        else:
            self.neck = ConcatPyramid(channels, NARROW, scales=(scale,))
            hidden = nn.Sequential(nn.Conv2d(NARROW, NARROW, 3, padding=1, bias=False),
                                   nn.GroupNorm(8, NARROW), nn.ReLU())
        self.hidden = hidden
        self.classify = nn.Conv2d(sum(channels) if scale is None else NARROW, CLASSES, 1)
        nn.init.normal_(self.classify.weight, std=0.01)
        nn.init.zeros_(self.classify.bias)

    def forward(self, kept: Tensor, hw: tuple[int, int]) -> Tensor:
        maps, x = [each[:, 1:] for each in kept[:, :-1].float().unbind(1)], kept[:, -1].float()
        if self.backbone is None:
            maps.append(x[:, 1:])
        else:
            with torch.autocast('cpu', torch.bfloat16):
                maps += walk(self.backbone, x, hw, self.start - 1, 11)[1]
        grids = [each.float().transpose(1, 2).unflatten(2, hw) for each in maps]
        return self.classify(self.hidden(self.neck(grids)[0]))


def fit(model: Model, x: Tensor, y: Tensor, hw: tuple[int, int], patch: int, *, seed: int,
        steps: int, rates: dict[str, float]) -> None:
    """AdamW with warm-up and a cosine; labels at the images' size.

    Args:
        rates: of the head, of encodings ('encoding') and of the rest of the backbone ('blocks').
    """
    torch.manual_seed(seed)
    model.train()
    size = (hw[0] * patch, hw[1] * patch)
    y = F.interpolate(y[:, None].float(), size, mode='nearest')[:, 0].long()
    optimizer = torch.optim.AdamW(_groups(model, rates))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, (i + 1) / WARM_UP) * (
        0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * i / steps))))
    order: list[int] = []
    for _ in range(steps):
        if len(order) < BATCH:
            order = torch.randperm(len(x)).tolist()
        chosen = [order.pop() for _ in range(BATCH)]
        logits = model(x[chosen], hw)
        loss = F.cross_entropy(F.interpolate(logits, size, mode='bilinear'), y[chosen],
                               ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def _groups(model: Model, rates: dict[str, float]) -> list[dict[str, Any]]:
    def part(name: str) -> str:
        if not name.startswith('backbone.'):
            return 'head'
        return 'encoding' if 'pos_encoding' in name else 'blocks'
    # Encodings have no weight decay, and neither have norms and biases.
    return [dict(params=[p], lr=rates[part(name)],
                 weight_decay=0.05 if p.dim() > 1 and part(name) != 'encoding' else 0.0)
            for name, p in model.named_parameters() if p.requires_grad]


@torch.no_grad()
def ious(model: Model, x: Tensor, y: Tensor, hw: tuple[int, int], patch: int) -> list[float]:
    """IoU of every class in percent, over all pixels of all images."""
    model.eval()
    confusion = torch.zeros(CLASSES * CLASSES, dtype=torch.long)
    size = (hw[0] * patch, hw[1] * patch)
    for i in range(0, len(x), BATCH):
        logits = F.interpolate(model(x[i:i + BATCH], hw), size, mode='bilinear')
        logits = F.interpolate(logits, y.shape[1:], mode='bilinear')
        known = y[i:i + BATCH] != 255
        pairs = y[i:i + BATCH][known] * CLASSES + logits.argmax(1)[known]
        confusion += torch.bincount(pairs, minlength=CLASSES ** 2)
    table = confusion.view(CLASSES, CLASSES)
    hits = table.diag()
    return (100 * hits / (table.sum(0) + table.sum(1) - hits).clamp(min=1)).tolist()
