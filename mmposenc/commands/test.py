"""Test a detector, segmentor or classifier.

    mmposenc test CONFIG work_dirs/NAME/epoch_12.pth --show-dir pictures
    torchrun --nproc-per-node=8 -m mmposenc test CONFIG CHECKPOINT \\
        --launcher pytorch
"""
import argparse

from ..command_line import reported
from ..command_options import add_run_options, config_parser, parse_run


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = config_parser(__doc__, 'model.test_cfg.score_thr=0.1', prog='mmposenc test')
    add_run_options(parser)
    parser.add_argument('checkpoint', help='the weights')
    parser.add_argument('--out', metavar='FILE.pkl', help='write the predictions to a pickle; '
                        'in segmentation a folder instead takes the label maps')
    parser.add_argument('--show-dir', help='draw the predictions of each image into this folder')
    parser.add_argument('--tta', action='store_true', help='merge the predictions of several '
                        'views: tta_model and tta_pipeline of the config, else a flip')
    return parse_run(parser, argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reported(args):
        from .. import engine
        from ..engine.config.options import read_run_config
        cfg = read_run_config(args)
        engine.prepare_testing(cfg, args.checkpoint, out=args.out, show_dir=args.show_dir,
                               tta=args.tta, compiled=args.compile,
                               allow_mismatch=args.allow_mismatch)
        engine.build_runner(cfg).test()
    engine.leave_process_group()
