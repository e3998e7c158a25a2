"""Train a detector, segmentor or classifier.

    mmposenc train mmposenc::detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py
    torchrun --nproc-per-node=8 --no-python mmposenc train CONFIG --launcher pytorch
"""
import argparse

from ..terminal.messages import reporting_errors
from ..terminal.options import SIDE, add_run_options, make_config_parser, size_or


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = make_config_parser(__doc__, 'optim_wrapper.optimizer.lr=1e-4', prog='mmposenc train')
    add_run_options(parser)
    parser.add_argument('--size', dest='trained_size', type=size_or(SIDE), metavar='SIZE',
                        help="size of the images of training and test: pixels of the test's "
                        'shorter side; all sizes in the config change by the same factor')
    parser.add_argument('--amp', action='store_true',
                        help='mixed precision: float16 on a GPU, bfloat16 on a CPU')
    parser.add_argument('--auto-scale-lr', action='store_true', help='scale the learning rate by '
                        'the total batch size / auto_scale_lr.base_batch_size')
    parser.add_argument('--resume', nargs='?', const='auto', metavar='auto|CHECKPOINT',
                        help="resume a run from a checkpoint; 'auto', the default: from its latest")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from .. import engine
        from ..engine.variants.applying import read_encoded_config
        cfg = read_encoded_config(args)
        engine.train(cfg, amp=args.amp, compiled=args.compile, auto_scale_lr=args.auto_scale_lr,
                     resume=args.resume, allow_mismatch=args.allow_mismatch)
    engine.leave_process_group()
