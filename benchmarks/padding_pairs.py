"""Random pairs of sizes: does each family give for an image in a batch what it gives alone?

    python benchmarks/padding_pairs.py [--pairs 20] [--families RetinaNet DINO] [--backbones PVT]
    python benchmarks/padding_pairs.py --configs mmdet [--families yolox sparse_rcnn] [--losses]

The narrow models of the tests with random weights, by the tests' own comparison (boxes to 1e-3
pixels, scores to 1e-5, the same labels and masks), with 1e3 in the padding. Sides are drawn from 33
to 160 pixels. What differs is printed; the last line counts.

With ``--configs`` one config of every folder of mmdet's or mmseg's (that of the smallest network by
its name), at its own width: one pair, or one of sides that are multiples of 32 where the model can
not take an image of other sides alone. What is printed: whether it is the same, whether backbone
and neck see whole batches ('batch') or images ('one by one'), and whether it trains. With
``--losses`` those that train are trained for a step in float64: two images of one size against the
model's own loss, and two sizes with and without more cells beyond the images; the largest
difference of losses and of gradients, over the norm of all, is printed.
"""
from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path[:0] = [str(Path(__file__).parent.parent / 'tests' / part) for part in ('', 'padding')]
import losscases  # noqa: E402
import tinyfamilies  # noqa: E402
from test_models import FAMILIES, assert_batch_is_images, kept_out  # noqa: E402

from mmposenc.padding import keep_padding_out, losses  # noqa: E402
from mmposenc.padding.losses import why_not  # noqa: E402

#: Parts of the names of configs of small networks, the smallest first.
SMALL = ('b0', 'r18', 'tiny', '-t_', '-s_', 's12', 'r50', 'hr18', 'w18', '-b')
#: Sizes: any; multiples of 32; large ones, for networks with steps of 64 or many queries.
PAIRS = {'any': [(97, 122, 0), (128, 86, 1)], 'multiples of 32': [(96, 128, 0), (128, 64, 1)],
         'large': [(416, 448, 0), (448, 416, 1)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--pairs', type=int, default=20)
    parser.add_argument('--families', nargs='+')
    parser.add_argument('--backbones', nargs='+', choices=tinyfamilies.BACKBONES,
                        default=list(tinyfamilies.BACKBONES))
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--configs', choices=['mmdet', 'mmseg'])
    parser.add_argument('--losses', action='store_true')
    args = parser.parse_args()
    if args.configs:
        of_configs(args.configs, args.families, of_losses if args.losses else of_config)
        return
    done = differ = 0
    for backbone in args.backbones:
        for name in args.families or FAMILIES:
            draw = random.Random(args.seed)
            model = kept_out(name, backbone)
            torch.manual_seed(0)
            for number in range(args.pairs):
                pair = [(draw.randint(33, 160), draw.randint(33, 160), 2 * number + i)
                        for i in range(2)]
                done += 1
                try:
                    assert_batch_is_images(model, pair)
                except AssertionError:
                    differ += 1
                    print(f'{name} on {backbone}: {pair} differ', flush=True)
            print(f'{name} on {backbone}: {args.pairs} pairs', flush=True)
    print(f'{done - differ} of {done} pairs of sizes are the same')


def of_configs(scope: str, families: list[str] | None, find: Callable[[Path], str]) -> None:
    folder, found = tinyfamilies.config_folders()[scope], []
    for family in families or sorted(path.name for path in folder.iterdir()
                                     if path.is_dir() and path.name != '_base_'):
        start = time.monotonic()
        configs = sorted((folder / family).glob('*.py'), key=lambda path: (
            next((i for i, part in enumerate(SMALL) if part in path.name), len(SMALL)),
            len(path.name), path.name))
        said = 'no configs'
        for path in configs[:3]:  # some can not be built as they stand
            try:
                said = find(path)
                break
            except Exception as error:
                said = f'not built: {type(error).__name__}: {error}'[:200]
        found.append(said)
        print(f'{family} ({configs[0].name if not configs else path.name}): {said}; '
              f'{time.monotonic() - start:.0f} s', flush=True)
    print(f'{sum(line.startswith("same") for line in found)} of {len(found)} are the same')


@torch.no_grad()
def of_config(path: Path) -> str:
    """What is found of the model of a config."""
    model = keep_padding_out(tinyfamilies.of_config(path))
    for sizes, pair in PAIRS.items():
        try:
            for image in pair:
                model(**tinyfamilies.batch(model, [image]), mode='predict')
        except Exception as error:
            said = f'fails alone: {type(error).__name__}: {error}'[:160]
            continue
        try:
            assert_batch_is_images(model, pair)
            said = f'same ({sizes})'
        except AssertionError as error:
            said = in_float64(path, pair, f'different: {error}'.partition('\n')[0])
        break
    reader = model.reads_padding()
    said += ', batch' if reader is None else f', one by one ({reader[:160]})'
    try:
        model.train()
        model.refuse_training()
        return f'{said}, {why_not(model) or "trains"}'
    except ValueError as error:
        return f'{said}, refused ({str(error)[:160]})'


def of_losses(path: Path) -> str:
    """What is found of the loss of a config's model."""
    with losscases.float64():
        model = losscases.training(tinyfamilies.of_config(path))
        want = losscases.found(model, losscases.SIZES, losscases.EMPTY)
        model = keep_padding_out(model)
        if (reason := why_not(model)) is not None:
            return reason
        filled, one_size = losses._filled, losses._one_size
        try:
            losses._one_size = lambda images: False
            one = losscases.found(model, losscases.SIZES, losscases.EMPTY, border=32)
            two = losscases.found(model, losscases.PAIR, junk=1e3)
            losses._filled = lambda maps, fill: filled([*maps, F.pad(maps[0][:0], (0, 9, 0, 9))],
                                                       fill)
            more = losscases.found(model, losscases.PAIR, junk=1e3)
        finally:
            losses._filled, losses._one_size = filled, one_size
    return 'same to ' + ', '.join(f'{difference(*pair):.0e}' for pair in ((one, want), (more, two)))


def difference(got: losscases.Found, want: losscases.Found) -> float:
    norm = sum(float(grad.square().sum()) for grad in want[1].values()) ** 0.5
    return max(abs(got[0] - want[0]) / abs(want[0]),
               *(float((got[1][key] - grad).norm()) / norm for key, grad in want[1].items()))


def in_float64(path: Path, pair: list[tuple[int, int, int]], said: str) -> str:
    """Whether what differs is rounding."""
    try:
        with losscases.float64():
            assert_batch_is_images(keep_padding_out(tinyfamilies.of_config(path)), pair)
        return f'same in float64 ({said})'
    except Exception as error:
        return f'{said}; in float64 {type(error).__name__}: {error}'[:240]


if __name__ == '__main__':
    main()
