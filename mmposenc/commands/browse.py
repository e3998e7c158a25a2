"""Draw training images after augmentation, with their ground truth.

    mmposenc browse CONFIG --output-dir pictures --number 20
    mmposenc browse CONFIG --data data/mine --output-dir pictures
"""
import argparse

from ..terminal.messages import reporting_errors
from ..terminal.options import SEED, make_config_parser


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = make_config_parser(__doc__, 'train_dataloader.dataset.pipeline.3.prob=1',
                                prog='mmposenc browse')
    parser.add_argument('--output-dir', required=True, help='folder of the pictures')
    parser.add_argument('--number', type=int, default=20,
                        help='how many images, spread over the data set; -1 for all')
    parser.add_argument('--phase', choices=['train', 'val', 'test'], default='train')
    parser.add_argument('--seed', type=SEED, default=0, help='seed of the augmentations')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from .. import engine
        from ..engine.config.options import config_of_arguments
        cfg = config_of_arguments(args)
        written = engine.browse(cfg, args.output_dir, phase=args.phase, number=args.number,
                                seed=args.seed)
    print(f'pictures: {len(written)}, in {args.output_dir}')
