"""Test a detector, segmentor or classifier.

    mmposenc test CONFIG work_dirs/NAME/epoch_12.pth --show-dir pictures
    mmposenc test CONFIG CHECKPOINT --sizes 160 224 192x320    # the metrics by image size
    torchrun --nproc-per-node=8 --no-python mmposenc test CONFIG CHECKPOINT \\
        --launcher pytorch
"""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal.messages import reporting_errors
from ..terminal.options import SIDE, add_run_options, make_config_parser, size_or

if TYPE_CHECKING:
    from mmengine.config import Config


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = make_config_parser(__doc__, 'model.test_cfg.score_thr=0.1', prog='mmposenc test')
    add_run_options(parser)
    parser.add_argument('checkpoint', help='the weights')
    parser.add_argument('--out', metavar='FILE.pkl', help='write the predictions to a pickle; '
                        'in segmentation a folder for label maps is possible too')
    parser.add_argument('--show-dir', help='draw the predictions of each image into this folder')
    parser.add_argument('--tta', action='store_true', help='merge the predictions of several '
                        'views: tta_model and tta_pipeline of the config')
    parser.add_argument('--sizes', type=size_or(SIDE), nargs='+', metavar='SIZE', help='test '
                        'at several sizes: pixels of the shorter side, or HEIGHTxWIDTH, to which '
                        'images are stretched, such as 480x864; tables of encodings are resized')
    args = parser.parse_args(argv)
    if args.sizes and args.out:
        parser.error('--sizes tests several times; leave --out out')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from .. import engine
        from ..engine.variants.applying import read_encoded_config
        cfg = read_encoded_config(args)
        if args.sizes:
            _test_sizes(cfg, args)
        else:
            _test(cfg, args, args.show_dir)
    engine.leave_process_group()


def _test(cfg: Config, args: argparse.Namespace, show_dir: str | None) -> dict[str, float]:
    from .. import engine
    from ..terminal.processes import print_in_first_process
    metrics = engine.test(cfg, args.checkpoint, out=args.out, show_dir=show_dir, tta=args.tta,
                          compiled=args.compile, allow_mismatch=args.allow_mismatch)
    for name, path in (('predictions', args.out), ('pictures', show_dir)):
        if path is not None:
            print_in_first_process(f'{name}: {path}')
    return metrics


def _test_sizes(cfg: Config, args: argparse.Namespace) -> None:
    """Test at each size, and print a line with the metrics of each."""
    from ..engine.config.parsed import ParsedConfig
    from ..engine.config.testing import set_visualizer
    from ..engine.variants.sizes import config_at_size
    from ..terminal.processes import print_in_first_process
    parsed = ParsedConfig(cfg)
    short = min(parsed.tested_size or (0,))
    if not short and not all(isinstance(size, str) for size in args.sizes):
        raise ValueError('--sizes: no step of the test pipeline has a size that can be changed')
    set_visualizer(parsed)
    work_dir, lines = Path(cfg.work_dir), []
    for size in args.sizes:
        one = config_at_size(cfg, size if isinstance(size, str) else size / short)
        one.work_dir = str(work_dir / f'size-{size}')
        one.experiment_name = one.visualizer.name = f'{work_dir.name}-{size}'
        metrics = _test(one, args, args.show_dir and str(Path(args.show_dir) / str(size)))
        values = ', '.join(f'{name} {value:g}' for name, value in metrics.items())
        lines.append(f'size {size}: {values}')
    for line in lines:
        print_in_first_process(line)
