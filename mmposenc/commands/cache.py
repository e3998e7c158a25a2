"""Compute the features of a frozen backbone for all views of the training set.

    mmposenc cache CONFIG --folder work_dirs/features
    mmposenc train CONFIG --feature-cache work_dirs/features

Training computes missing features by itself; this command computes all of them before it. The
number of views and the largest size of the folder are options of mmposenc.FeatureCacheHook in
custom_hooks.
"""
import argparse

from ..command_line import reported
from ..command_options import config_parser


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = config_parser(__doc__, 'custom_hooks.0.views=2', prog='mmposenc cache')
    parser.add_argument('--folder', help='folder of the features (default: that of the '
                        "config's mmposenc.FeatureCacheHook)")
    parser.add_argument('--work-dir', help='folder of the log (default: work_dir of the config, or '
                        'work_dirs/<name of the config>)')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reported(args):
        from .. import engine
        from ..engine.config.options import read_config
        cfg = read_config(args)
        engine.set_work_dir(cfg, args.work_dir)
        counts = engine.cache_features(cfg, args.folder)
    print(', '.join(f'{count} {what}' for what, count in counts.items() if count))
