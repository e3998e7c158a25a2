"""Draw what a model's position encodings do.

    mmposenc figures CONFIG [CHECKPOINT] --output-dir figures
    mmposenc figures CONFIG [CHECKPOINT] --figure NAME --out figure.svg
    mmposenc figures CONFIG [CHECKPOINT] --gallery gallery --image photo.jpg

The first draws all encodings of a model for one query: buckets, biases of the logits, attention,
token encodings (kernels of a PEG). The second draws one figure for a paper (docs/visualization.md):

    matrix       attention of all queries and keys, with and without encodings
    attention    attention of 14 x 14 queries, each as a map
    overlay      attention of points on the photo; in windows also the window
    rollout      attention of all layers multiplied, on the photo (not for PVT and Swin)
    bias         bias of the logits by offset, for each head
    references   bias of the logits for 5 x 5 queries
    rotary       factor of the product of query and key under rotary encoding, by offset
    buckets      the buckets of iRPE's four methods
    index        iRPE's index function and the clip function
    kernels      the kernels of a PEG
    added        what a PEG, or another token encoding, adds to the tokens, also relative to them
    similarity   similarity of the positions of an encoding
    pools        weights and sizes of ContextPool on the photo, by layer
    sizes        the sizes of ContextPool by layer
    cost         multiply-accumulates that iRPE adds, by image size

The third draws all figures that apply to the model, and a page of them.
Without a checkpoint the weights are random; without an image the input is noise.
"""
import argparse
import shlex
import sys

from ..command_line import reported
from ..command_options import COUNT, INDEX, SIDE, USUAL, config_parser, refuse_without

#: The figures of ``lab/figures/paper_figures.py``.
FIGURES = ('matrix', 'attention', 'kernels', 'index', 'buckets', 'references', 'similarity', 'cost',
           'sizes', 'bias', 'rotary', 'added', 'pools', 'overlay', 'rollout')


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = config_parser(__doc__, 'model.backbone.drop_path_rate=0', prog='mmposenc figures')
    parser.add_argument('checkpoint', nargs='?', help='weights of the model')
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--output-dir', help='draw all encodings into this folder')
    what.add_argument('--figure', choices=FIGURES, help='draw one figure')
    what.add_argument('--gallery', metavar='DIR', help='draw all figures that apply, and a page of '
                      'all models in this folder')
    parser.add_argument('--out', metavar='FILE', help='the figure: .png, .pdf or .svg')
    parser.add_argument('--save-arrays', metavar='FILE', help='write the numbers shown, as .npz')
    parser.add_argument('--width', type=float, metavar='INCHES', help='width of the figure; a '
                        'column of a paper is about 3.3, a page 7')
    parser.add_argument('--dpi', type=float, default=160, help='pixels per inch; default 160')
    parser.add_argument('--page', metavar='FILE', help='the page; default DIR/gallery.md')
    parser.add_argument('--name', help='heading of the model in the gallery; default: its config')
    parser.add_argument('--title', nargs='+', default=[], metavar='TEXT', help='name of the model '
                        'in titles, and of each model of --against; default: architecture and '
                        'encodings')
    _add_input(parser)
    parser.add_argument('--block', type=INDEX, default=0, help='index of the layer (for "kernels", '
                        '"added" and "similarity": of the encoding), from 0 in order of execution')
    parser.add_argument('--head', type=INDEX, help='one head; default the mean of all')
    parser.add_argument('--references', type=COUNT, metavar='N', help='N x N reference cells')
    parser.add_argument('--channels', type=INDEX, nargs='+', default=(), metavar='C',
                        help='channels of "added"; default the three that vary most')
    parser.add_argument('--no-prefix', action='store_true', help='leave class and distillation '
                        'tokens out of "matrix" and "overlay"')
    parser.add_argument('--against', nargs='+', action='append', default=[],
                        metavar='CONFIG [CHECKPOINT]', help='"matrix": a model to compare with')
    args = parser.parse_args(argv)
    if len(args.title) > 1 + len(args.against):
        parser.error(f'--title has {len(args.title)} names for {1 + len(args.against)} models')
    if args.figure and not args.out:
        parser.error(f'--figure {args.figure} needs --out FILE')
    if not args.figure:
        refuse_without(parser, args, '--figure', 'out', 'save_arrays', 'width', 'dpi', 'block',
                       'against')
    if not args.gallery:
        refuse_without(parser, args, '--gallery', 'page', 'name')
    if args.output_dir:
        refuse_without(parser, args, '--figure or --gallery', 'head', 'references', 'channels',
                       'no_prefix')
    if any(len(pair) > 2 for pair in args.against):
        parser.error('--against takes a config and at most one checkpoint; repeat it for more')
    if len(args.size or (1,)) > 2:
        parser.error('--size takes height and width, or the shorter side')
    return args


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--image', help='a picture')
    parser.add_argument('--size', type=SIDE, nargs='+', metavar='N',
                        help='size of the input: height and width, or the shorter side (the '
                             f"picture's aspect ratio is kept); default {USUAL}")
    parser.add_argument('--at', type=float, nargs=2, action='append', metavar=('Y', 'X'),
                        help='position of the query as fractions of height and width; default the '
                             'centre; several for "overlay", "rollout" and "buckets"')


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    places = [tuple(each) for each in args.at or ()]
    shared = dict(image=args.image, size=args.size)
    with reported(args):
        from .. import engine
        from ..engine.config.options import read_config
        from ..lab.figures.encoding_figures import (
            draw_gallery,
            visualize_encodings,
            visualize_figure,
        )
        from ..lab.figures.paper_figures import Choice
        choice = Choice(args.block, args.head, places, args.references, not args.no_prefix,
                        args.channels, args.width)
        cfg = read_config(args)
        title = next(iter(args.title), None)
        if args.output_dir is not None:
            if len(places) > 1:
                raise ValueError(f'at={places}: one place is required without --figure')
            at = places[0] if places else (0.5, 0.5)
            written = visualize_encodings(cfg, args.checkpoint, args.output_dir, at=at,
                                          title=title, **shared)
        elif args.gallery is not None:
            command = shlex.join(['mmposenc', 'figures', *(sys.argv[1:] if argv is None else argv)])
            written = draw_gallery(cfg, args.checkpoint, args.gallery, command=command,
                                   name=args.name, page=args.page, choice=choice, title=title,
                                   **shared)
        else:
            sources = [(cfg, args.checkpoint)]
            for config, *checkpoint in args.against:
                sources.append((engine.load_config(config), *(checkpoint or [None])))
            written = visualize_figure(args.figure, sources, args.out, choice=choice, dpi=args.dpi,
                                       save_arrays=args.save_arrays, titles=args.title, **shared)
    if args.figure is None:
        print(f'wrote {len(written)} figures to {args.output_dir or args.gallery}')
    else:
        print(f'wrote {", ".join(map(str, written))}')
