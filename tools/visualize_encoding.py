"""Draw what a model's position encodings do: buckets, terms of the logits, attention of a query.

    python tools/visualize_encoding.py CONFIG --output-dir figures
    python tools/visualize_encoding.py CONFIG CHECKPOINT --image photo.jpg --at 0.3 0.7 ...

Without a checkpoint the weights are random, without an image the input is noise.
"""
import argparse

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc import engine
from mmposenc.command_line import reported
from mmposenc.engine.encoding_figures import visualize_encodings
from mmposenc.engine.options import config_parser


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = config_parser(__doc__, 'model.backbone.drop_path_rate=0')
    parser.add_argument('checkpoint', nargs='?', help='weights of the model')
    parser.add_argument('--output-dir', required=True, help='where the figures go')
    parser.add_argument('--image', help='a picture')
    parser.add_argument('--size', type=int, nargs=2, default=(224, 224), metavar=('H', 'W'),
                        help='of the input; default 224 224')
    parser.add_argument('--at', type=float, nargs=2, default=(0.5, 0.5), metavar=('Y', 'X'),
                        help='where the query lies, as fractions of height and width')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reported(args, hold=True):
        cfg = engine.load_config(args.config)
        engine.override(cfg, args.cfg_options)
        written = visualize_encodings(cfg, args.checkpoint, args.output_dir, image=args.image,
                                      size=tuple(args.size), at=tuple(args.at))
    print(f'wrote {len(written)} figures to {args.output_dir}')


if __name__ == '__main__':
    main()
