"""Random pairs of sizes: does each family give for an image in a batch what it gives alone?

    python benchmarks/padding_pairs.py [--pairs 20] [--families RetinaNet DINO] [--backbones PVT]

The narrow models of the tests with random weights, by the tests' own comparison (boxes to 1e-3
pixels, scores to 1e-5, the same labels and masks), with 1e3 in the padding. Sides are drawn from 33
to 160 pixels. What differs is printed; the last line counts.
"""
from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent.parent / 'tests' / part) for part in ('', 'padding')]
import tinyfamilies  # noqa: E402
from test_models import FAMILIES, assert_batch_is_images, ready  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--pairs', type=int, default=20)
    parser.add_argument('--families', nargs='+', choices=FAMILIES, default=FAMILIES)
    parser.add_argument('--backbones', nargs='+', choices=tinyfamilies.BACKBONES,
                        default=list(tinyfamilies.BACKBONES))
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    done = differ = 0
    for backbone in args.backbones:
        for name in args.families:
            draw = random.Random(args.seed)
            model = ready(name, backbone)
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


if __name__ == '__main__':
    main()
