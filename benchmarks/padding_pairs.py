"""Does each family of mmdet's or mmseg's give for an image in a batch what it gives alone?

    python benchmarks/padding_pairs.py --configs mmdet [--families yolox sparse_rcnn]

One config of every folder (that of the smallest network by its name), at its own width with random
weights, by the tests' own comparison (boxes to 1e-3 pixels, scores to 1e-5, the same labels and
masks), with 1e3 in the padding: one pair of sizes, or one of sides that are multiples of 32 where
the model can not take an image of other sides alone. A line says whether the results are the same,
and whether backbone and neck process whole batches ('batch') or images ('one by one').
"""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

sys.path.insert(0, str(Path(__file__).parent.parent / 'tests'))
from helpers import tiny_upstream  # noqa: E402
from helpers.tiny_upstream import assert_batch_is_images  # noqa: E402

from mmposenc.padding import keep_padding_out  # noqa: E402

#: Parts of the names of configs of small networks, the smallest first.
SMALL = ('b0', 'r18', 'tiny', '-t_', '-s_', 's12', 'r50', 'hr18', 'w18', '-b')
#: Sizes: any; multiples of 32; large ones, for networks with steps of 64 or many queries.
PAIRS = {'any': [(97, 122, 0), (128, 86, 1)], 'multiples of 32': [(96, 128, 0), (128, 64, 1)],
         'large': [(416, 448, 0), (448, 416, 1)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--families', nargs='+')
    parser.add_argument('--configs', choices=['mmdet', 'mmseg'], required=True)
    args = parser.parse_args()
    folder, found = tiny_upstream.config_roots()[args.configs], []
    for family in args.families or sorted(path.name for path in folder.iterdir()
                                          if path.is_dir() and path.name != '_base_'):
        start = time.monotonic()
        configs = sorted((folder / family).glob('*.py'), key=lambda path: (
            next((i for i, part in enumerate(SMALL) if part in path.name), len(SMALL)),
            len(path.name), path.name))
        said = 'no configs'
        for path in configs[:3]:  # some can not be built as they stand
            try:
                said = of_config(path)
                break
            except Exception as error:
                said = f'not built: {type(error).__name__}: {error}'[:200]
        found.append(said)
        config = f' ({path.name})' if configs else ''
        print(f'{family}{config}: {said}; {time.monotonic() - start:.0f} s', flush=True)
    print(f'{sum(line.startswith("same") for line in found)} of {len(found)} are the same')


@torch.no_grad()
def of_config(path: Path) -> str:
    """Whether predictions of a config's model depend on the batch."""
    model = keep_padding_out(tiny_upstream.of_config(path))
    for sizes, pair in PAIRS.items():
        try:
            for image in pair:
                model(**tiny_upstream.batch(model, [image]), mode='predict')
        except Exception as error:
            said = f'fails alone: {type(error).__name__}: {error}'[:160]
            continue
        try:
            assert_batch_is_images(model, pair)
            said = f'same ({sizes})'
        except AssertionError as error:
            said = in_float64(path, pair, f'different: {error}'.partition('\n')[0])
        break
    reason = model.predict.why_one_by_one
    return f'{said}, batch' if reason is None else f'{said}, one by one ({reason[:160]})'


class Doubled(TorchFunctionMode):
    """Within it, code that asks for float32 by name gets float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def wide(value):
            return torch.float64 if value is torch.float32 else value
        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(wide, args), **{key: wide(each) for key, each in (kwargs or {}).items()})


@contextmanager
def float64() -> Iterator[None]:
    """All of mmdet's and mmseg's code in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        with Doubled():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def in_float64(path: Path, pair: list[tuple[int, int, int]], said: str) -> str:
    """Whether what differs is rounding."""
    try:
        with float64():
            assert_batch_is_images(keep_padding_out(tiny_upstream.of_config(path)), pair)
        return f'same in float64 ({said})'
    except Exception as error:
        return f'{said}; in float64 {type(error).__name__}: {error}'[:240]


if __name__ == '__main__':
    main()
