"""Draw what a model's position encodings do.

    mmposenc figures CONFIG [CHECKPOINT] --output-dir figures
    mmposenc figures CONFIG [CHECKPOINT] --figure NAME --out figure.svg

The first draws all that a model has, for one query: buckets, what is added to the logits,
attention, ContextPool. The second draws one figure of the papers (docs/visualization.md):

    matrix       attention of all queries and keys, with and without encodings
    attention    the same as a map for each of 14 x 14 reference cells
    kernels      the kernels of a PEG
    index        iRPE's index function beside the clip function
    buckets      the buckets of iRPE's four methods
    references   what an encoding adds to the logits of 5 x 5 reference cells
    similarity   how alike the positions of an encoding are
    cost         multiply-accumulates that iRPE adds, by the size of the image

Without a checkpoint the weights are random, without an image the input is noise.
"""
import argparse

from mmposenc import engine
from mmposenc.command_line import reported
from mmposenc.engine.encoding_figures import visualize_encodings, visualize_figure
from mmposenc.engine.options import config_parser, read_config
from mmposenc.visualization.paper_figures import FIGURES, Choice


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = config_parser(__doc__, 'model.backbone.drop_path_rate=0', prog='mmposenc figures')
    parser.add_argument('checkpoint', nargs='?', help='weights of the model')
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--output-dir', help='draw all, into this folder')
    what.add_argument('--figure', choices=FIGURES, help='draw one figure')
    parser.add_argument('--out', metavar='FILE', help='of the figure: .png, .pdf or .svg')
    parser.add_argument('--save-arrays', metavar='FILE', help='.npz of the numbers it shows')
    parser.add_argument('--image', help='a picture')
    parser.add_argument('--size', type=int, nargs=2, default=(224, 224), metavar=('H', 'W'),
                        help='of the input; default 224 224')
    parser.add_argument('--at', type=float, nargs=2, action='append', metavar=('Y', 'X'),
                        help='where a query lies, as fractions of height and width; default the '
                             'middle; several for "buckets"')
    parser.add_argument('--block', type=int, default=0, help='which layer (of "kernels" and '
                        '"similarity": which encoding), counted from 0 as they run')
    parser.add_argument('--head', type=int, help='one head; default the mean of all')
    parser.add_argument('--references', type=int, metavar='N', help='N x N reference cells')
    parser.add_argument('--no-prefix', action='store_true',
                        help='leave class and distillation tokens out of "matrix"')
    parser.add_argument('--against', nargs='+', action='append', default=[],
                        metavar='CONFIG [CHECKPOINT]', help='"matrix": a model to compare with')
    args = parser.parse_args(argv)
    if args.figure and not args.out:
        parser.error(f'--figure {args.figure} needs --out FILE')
    if any(len(pair) > 2 for pair in args.against):
        parser.error('--against takes a config and at most one checkpoint; repeat it for more')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    places = [tuple(each) for each in args.at or ()]
    shared = dict(image=args.image, size=tuple(args.size))
    with reported(args, hold=True):
        cfg = read_config(args)
        if args.figure is None:
            if len(places) > 1:
                raise ValueError(f'at={places}: one place is required without --figure')
            at = places[0] if places else (0.5, 0.5)
            written = visualize_encodings(cfg, args.checkpoint, args.output_dir, at=at, **shared)
        else:
            sources = [(cfg, args.checkpoint)]
            for config, *checkpoint in args.against:
                sources.append((engine.load_config(config), *(checkpoint or [None])))
            choice = Choice(args.block, args.head, places, args.references, not args.no_prefix)
            written = visualize_figure(args.figure, sources, args.out, choice=choice,
                                       save_arrays=args.save_arrays, **shared)
    print(f'wrote {len(written)} figures to {args.output_dir}' if args.figure is None
          else f'wrote {", ".join(map(str, written))}')
