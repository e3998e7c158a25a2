"""Predict images, or folders of images.

    mmposenc predict photo.jpg CONFIG work_dirs/NAME/epoch_12.pth --out predicted
    mmposenc predict photos/ CONFIG CHECKPOINT --out predicted --score-thr 0.5

Writes predictions.json, pictures/ and, in segmentation, masks/ (docs/predict.md).
"""
import argparse
import sys
from pathlib import Path

from ..terminal.messages import Parser, counted, reporting_errors
from ..terminal.options import add_config


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc predict')
    parser.add_argument('source', metavar='SOURCE', help='an image, or a folder of them')
    add_config(parser, 'model.test_cfg.nms.iou_threshold=0.4')
    parser.add_argument('checkpoint', help='the weights')
    parser.add_argument('--out', required=True, metavar='DIR', help='folder of the results')
    parser.add_argument('--score-thr', type=float, metavar='S', help='detection: only boxes with a '
                        'higher score are written and drawn; default 0.3')
    parser.add_argument('--no-pictures', action='store_true', help='write no pictures')
    parser.add_argument('--device', help="'cpu', 'cuda:1'; default: a GPU if there is one")
    parser.add_argument('--overwrite', action='store_true', help='replace the results in DIR')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from ..engine.apps.predict_files import predict_files
        from ..engine.config.options import config_of_arguments
        skipped = predict_files(
            config_of_arguments(args), args.checkpoint, args.source, args.out,
            score_thr=args.score_thr, pictures=not args.no_pictures, device=args.device,
            overwrite=args.overwrite)
    folders = [f', {name}: {args.out}/{name}' for name in ('pictures', 'masks')
               if Path(args.out, name).is_dir()]
    print(f'results: {args.out}/predictions.json{"".join(folders)}')
    if skipped:
        sys.exit(f'error: {counted(len(skipped), "file")} could not be predicted; they are named '
                 f'above and in {args.out}/predictions.json')
