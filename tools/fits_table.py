"""Write docs/tables/fits.csv: which encoding `mmposenc compare` can put into which model.

    python tools/fits_table.py            # write it
    python tools/fits_table.py --check    # change nothing; fail where it is out of date

Small models of each kind are built and passed through at the trained size and at twice it, as
`mmposenc compare` does before it trains.
"""
import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmposenc import engine
from mmposenc.engine.variants.applying import check_fits
from mmposenc.engine.variants.encodings import NAMES, read_entries
from mmposenc.lab.compare.page.exports import csv_rows
from mmposenc.terminal.messages import Parser, reported
from mmposenc.terminal.streams import doing

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / 'docs' / 'tables' / 'fits.csv'
SMALL = 'mmposenc::classification/small/'
DETECTION = 'mmposenc::detection/'
#: Column, config, and what makes its model small.
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ('PVT', SMALL + 'pvt-micro-none_1xb32-40e_mnist5k.py', {}),
    ('DeiT', SMALL + 'deit-micro-none_1xb32-40e_mnist5k.py', {}),
    ('DeiT, GAP', SMALL + 'deit-micro-none_1xb32-40e_mnist5k.py', {'model.backbone.pool': 'gap'}),
    ('Swin', 'mmposenc::classification/swin/swin-t_8xb128_in1k.py', {
        'model.backbone.arch': None, 'model.backbone.embed_dims': 32,
        'model.backbone.num_layers': [2, 2], 'model.backbone.num_heads': [2, 4],
        'model.backbone.window_size': 7}),
    ('CPResNet', 'mmposenc::classification/context_pool/cp-resnet-44_1xb128_cifar10.py',
     {'model.backbone.depth': 20}),
    ('DETR', DETECTION + 'detr/detr_r50_8xb2-150e_coco.py', {
        'model.backbone.depth': 18, 'model.backbone.base_channels': 4,
        'model.backbone.stem_channels': 4, 'model.neck.in_channels': [32],
        'model.encoder.num_layers': 2, 'model.decoder.num_layers': 1}),
    ('Deformable DETR', DETECTION + 'small/deformable-detr_r18-w16_1xb4-50e_bccd.py', {}),
]


def small_models() -> Iterator[tuple[str, Config]]:
    for title, name, options in MODELS:
        cfg = engine.load_config(name)
        engine.override(cfg, copy.deepcopy(options))
        yield title, cfg


def cell(cfg: Config, name: str) -> str:
    """'yes', '1x' where only the trained size is possible, or 'no'."""
    entry, = read_entries([name])
    for answer, sizes in (('yes', (1, 2)), ('1x', (1,))):
        try:
            check_fits(cfg, entry, sizes)
        except ValueError:
            continue
        return answer
    return 'no'


def row(models: list[tuple[str, Config]], name: str) -> list[str]:
    """What is said of one encoding."""
    return [f'`{name}`', NAMES[name][0], *(cell(cfg, name) for _, cfg in models)]


def table() -> str:
    """The table as CSV."""
    models = list(small_models())
    head = ['name', 'encoding', *(title for title, _ in models)]
    rows = []
    for index, name in enumerate(NAMES, 1):
        doing(f'encoding {index} of {len(NAMES)}, {name}')
        rows.append(row(models, name))
    return csv_rows([head, *rows])


def main(argv: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument('--check', action='store_true', help='write nothing')
    args = parser.parse_args(argv)
    with reported(args):
        made = table()
        if args.check and made != TABLE.read_text():
            raise ValueError(f'{TABLE.name} is out of date: run `python tools/fits_table.py`')
        TABLE.write_text(made)


if __name__ == '__main__':
    main(sys.argv[1:])
