"""The official Deformable DETR as functions of its own file's names, written from the paper
(Zhu et al., ICLR 2021) and the release's code, with the slowest attention there is.

Parameters ``p`` are the release's state dict. Backbone: ResNet-50 of any width.
"""
from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

Params = dict[str, Tensor]
BLOCKS = (3, 4, 6, 3)
HEADS, POINTS = 4, 2


def linear(p: Params, name: str, x: Tensor) -> Tensor:
    return F.linear(x, p[f'{name}.weight'], p[f'{name}.bias'])


def norm(p: Params, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], p[f'{name}.weight'], p[f'{name}.bias'])


def mlp(p: Params, name: str, x: Tensor) -> Tensor:
    """Three layers, of boxes."""
    for i in range(3):
        x = linear(p, f'{name}.layers.{i}', x if i == 0 else x.relu())
    return x


def backbone(p: Params, x: Tensor, dc5: bool) -> list[Tensor]:
    """Maps of stages 2 to 4. With ``dc5`` torchvision's last stage has stride 1; its first block is
    not dilated yet, the others by 2."""
    def conv_bn(x: Tensor, conv: str, bn: str, **kwargs: int) -> Tensor:
        x = F.conv2d(x, p[f'backbone.0.body.{conv}.weight'], **kwargs)
        stats = [p[f'backbone.0.body.{bn}.{key}']
                 for key in ('running_mean', 'running_var', 'weight', 'bias')]
        return F.batch_norm(x, *stats)

    x = F.max_pool2d(conv_bn(x, 'conv1', 'bn1', stride=2, padding=3).relu(), 3, 2, 1)
    maps = []
    for stage, blocks in enumerate(BLOCKS, start=1):
        for block in range(blocks):
            name = f'layer{stage}.{block}'
            stride = 2 if block == 0 and stage > 1 and not (dc5 and stage == 4) else 1
            dilation = 2 if dc5 and stage == 4 and block > 0 else 1
            y = conv_bn(x, f'{name}.conv1', f'{name}.bn1').relu()
            y = conv_bn(y, f'{name}.conv2', f'{name}.bn2', stride=stride, padding=dilation,
                        dilation=dilation).relu()
            y = conv_bn(y, f'{name}.conv3', f'{name}.bn3')
            if block == 0:
                x = conv_bn(x, f'{name}.downsample.0', f'{name}.downsample.1', stride=stride)
            x = (x + y).relu()
        maps.append(x)
    return maps[1:]


def sines(values: Tensor, num: int) -> Tensor:
    """(...,) angles -> (..., num): sine and cosine in turns, wavelengths up to 10000."""
    waves = 10000 ** (2 * (torch.arange(num) // 2) / num)
    angles = values[..., None] / waves
    return torch.stack((angles[..., 0::2].sin(), angles[..., 1::2].cos()), -1).flatten(-2)


def positions(mask: Tensor, dims: int) -> Tensor:
    """(B, H, W) mask, True = padding -> (B, H, W, dims), rows first."""
    y, x = (~mask).cumsum(1).float(), (~mask).cumsum(2).float()
    y = (y - 0.5) / (y[:, -1:] + 1e-6) * 2 * math.pi
    x = (x - 0.5) / (x[:, :, -1:] + 1e-6) * 2 * math.pi
    return torch.cat((sines(y, dims // 2), sines(x, dims // 2)), -1)


def deformable(p: Params, name: str, query: Tensor, reference: Tensor, memory: Tensor,
               masks: list[Tensor]) -> Tensor:
    """Every image, head and level by itself. reference: (B, Q, levels, 2 or 4)."""
    batch, count, dims = query.shape
    levels, size = len(masks), dims // HEADS
    flat_mask = torch.cat([mask.flatten(1) for mask in masks], 1)
    value = linear(p, f'{name}.value_proj', memory).masked_fill(flat_mask[..., None], 0)
    offsets = linear(p, f'{name}.sampling_offsets', query).view(
        batch, count, HEADS, levels, POINTS, 2)
    weights = linear(p, f'{name}.attention_weights', query).view(batch, count, HEADS, -1)
    weights = weights.softmax(-1).view(batch, count, HEADS, levels, POINTS)
    out = torch.zeros(batch, count, HEADS, size)
    start = 0
    for level, mask in enumerate(masks):
        height, width = mask.shape[-2:]
        for b in range(batch):
            for head in range(HEADS):
                grid = value[b, start:start + height * width, head * size:(head + 1) * size]
                grid = grid.t().reshape(1, size, height, width)
                point, offset = reference[b, :, level, None], offsets[b, :, head, level]
                at = (point[..., :2] + offset / torch.tensor([width, height])
                      if point.shape[-1] == 2 else
                      point[..., :2] + offset / POINTS * point[..., 2:] * 0.5)
                sampled = F.grid_sample(grid, 2 * at[None] - 1, align_corners=False)[0]
                out[b, :, head] += (sampled * weights[b, :, head, level]).sum(-1).t()
        start += height * width
    return linear(p, f'{name}.output_proj', out.flatten(2))


def self_attention(p: Params, name: str, x: Tensor, pos: Tensor) -> Tensor:
    dims = x.shape[-1]
    weight, bias = p[f'{name}.in_proj_weight'], p[f'{name}.in_proj_bias']
    q, k, v = (F.linear(tokens, weight[i * dims:(i + 1) * dims], bias[i * dims:(i + 1) * dims])
               .unflatten(-1, (HEADS, -1)).transpose(1, 2)
               for i, tokens in enumerate((x + pos, x + pos, x)))
    out = (q @ k.mT / math.sqrt(dims // HEADS)).softmax(-1) @ v
    return linear(p, f'{name}.out_proj', out.transpose(1, 2).flatten(2))


def feed_forward(p: Params, name: str, x: Tensor) -> Tensor:
    return x + linear(p, f'{name}.linear2', linear(p, f'{name}.linear1', x).relu())


def inverse_sigmoid(x: Tensor) -> Tensor:
    x = x.clamp(0, 1)
    return (x.clamp(min=1e-5) / (1 - x).clamp(min=1e-5)).log()


def number(p: Params, pattern: str) -> int:
    """How many of a list's members the file has."""
    count = 0
    while any(name.startswith(pattern.format(count)) for name in p):
        count += 1
    return count


def levels_of(p: Params, images: Tensor, padding: Tensor, dc5: bool
              ) -> tuple[list[Tensor], list[Tensor]]:
    """Projected maps and their masks."""
    maps = backbone(p, images, dc5)
    count = number(p, 'input_proj.{}.')
    maps = maps if count > 1 else maps[-1:]
    projected, x = [], maps[-1]
    for level in range(count):
        weight, bias = (p[f'input_proj.{level}.0.{kind}'] for kind in ('weight', 'bias'))
        x = (F.conv2d(maps[level], weight, bias) if level < len(maps) else
             F.conv2d(maps[-1] if level == len(maps) else x, weight, bias, stride=2, padding=1))
        x = F.group_norm(x, 32, *(p[f'input_proj.{level}.1.{kind}'] for kind in ('weight', 'bias')))
        projected.append(x)
    masks = [F.interpolate(padding[None].float(), size=x.shape[-2:])[0].bool() for x in projected]
    return projected, masks


def centres(mask: Tensor) -> Tensor:
    """(B, H * W, 2) centres of the cells, x and y, as a share of the valid part."""
    height, width = mask.shape[-2:]
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing='ij')
    valid = torch.stack(((~mask[:, 0]).sum(1), (~mask[:, :, 0]).sum(1)), -1)[:, None]
    return torch.stack((x, y), -1).reshape(1, -1, 2) / valid


def proposals(p: Params, memory: Tensor, masks: list[Tensor], last: int, count: int
              ) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes of the best tokens before the sigmoid, and the queries made of them, position first."""
    boxes = torch.cat([torch.cat((centres(mask), torch.full_like(centres(mask), 0.05 * 2 ** i)), -1)
                       for i, mask in enumerate(masks)], 1)
    out = ((boxes <= 0.01) | (boxes >= 0.99)).any(-1, keepdim=True)
    out = out | torch.cat([mask.flatten(1) for mask in masks], 1)[..., None]
    tokens = norm(p, 'transformer.enc_output_norm',
                  linear(p, 'transformer.enc_output', memory.masked_fill(out, 0)))
    boxes = (boxes / (1 - boxes)).log().masked_fill(out, math.inf)
    boxes = boxes + mlp(p, f'bbox_embed.{last}', tokens)
    best = linear(p, f'class_embed.{last}', tokens)[..., 0].topk(count, 1).indices
    boxes = boxes.gather(1, best[..., None].expand(-1, -1, 4))
    made = sines(boxes.sigmoid() * 2 * math.pi, 128).flatten(2)
    made = norm(p, 'transformer.pos_trans_norm', linear(p, 'transformer.pos_trans', made))
    return (boxes, *made.chunk(2, -1))


def forward(p: Params, images: Tensor, padding: Tensor, *, dc5: bool = False, count: int = 5
            ) -> tuple[Tensor, Tensor]:
    """Class numbers before the sigmoid (layers, B, queries, classes) and boxes (layers, B, queries,
    4) as shares of the image.

    Args:
        images: (B, 3, H, W), normalised. padding: (B, H, W), True = padding.
        count: queries of the two-stage model; others have theirs in the file.
    """
    maps, masks = levels_of(p, images, padding, dc5)
    tokens = torch.cat([x.flatten(2).mT for x in maps], 1)
    pos = torch.cat([(positions(mask, x.shape[1]) + p['transformer.level_embed'][i]).flatten(1, 2)
                     for i, (x, mask) in enumerate(zip(maps, masks, strict=True))], 1)
    ratios = torch.stack([torch.stack(((~m[:, 0]).float().mean(1), (~m[:, :, 0]).float().mean(1)),
                                      -1) for m in masks], 1)[:, None]
    points = torch.cat([centres(mask) for mask in masks], 1)[:, :, None] * ratios
    for i in range(number(p, 'transformer.encoder.layers.{}.')):
        name = f'transformer.encoder.layers.{i}'
        attended = deformable(p, f'{name}.self_attn', tokens + pos, points, tokens, masks)
        tokens = norm(p, f'{name}.norm1', tokens + attended)
        tokens = norm(p, f'{name}.norm2', feed_forward(p, name, tokens))

    layers = number(p, 'transformer.decoder.layers.{}.')
    if 'transformer.enc_output.weight' in p:
        boxes, query_pos, x = proposals(p, tokens, masks, layers, count)
        reference = boxes.sigmoid()
    else:
        query_pos, x = (half.expand(len(images), -1, -1)
                        for half in p['query_embed.weight'].chunk(2, -1))
        reference = linear(p, 'transformer.reference_points', query_pos).sigmoid()
    refine = 'transformer.decoder.bbox_embed.0.layers.0.weight' in p
    classes, boxes_of = [], []
    for i in range(layers):
        name = f'transformer.decoder.layers.{i}'
        scale = torch.cat((ratios, ratios), -1) if reference.shape[-1] == 4 else ratios
        x = norm(p, f'{name}.norm2', x + self_attention(p, f'{name}.self_attn', x, query_pos))
        x = norm(p, f'{name}.norm1', x + deformable(
            p, f'{name}.cross_attn', x + query_pos, reference[:, :, None] * scale, tokens, masks))
        x = norm(p, f'{name}.norm3', feed_forward(p, name, x))
        box = mlp(p, f'bbox_embed.{i}', x)
        box = (box + F.pad(inverse_sigmoid(reference), (0, 4 - reference.shape[-1]))).sigmoid()
        classes.append(linear(p, f'class_embed.{i}', x))
        boxes_of.append(box)
        reference = box if refine else reference
    return torch.stack(classes), torch.stack(boxes_of)
