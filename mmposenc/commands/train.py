"""Train a detector, segmentor or classifier.

    mmposenc train mmposenc::detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py
    torchrun --nproc-per-node=8 --no-python mmposenc train CONFIG --launcher pytorch
"""
import argparse

from ..terminal.messages import reporting_errors
from ..terminal.options import add_run_options, make_config_parser


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = make_config_parser(__doc__, 'optim_wrapper.optimizer.lr=1e-4', prog='mmposenc train')
    add_run_options(parser)
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
