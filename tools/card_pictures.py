"""Draw the pictures of docs/encodings.md, relative.md and rotary.md: models on digits, inspected.

    mmposenc prepare mnist5k
    python tools/card_pictures.py            # all, about a minute each
    python tools/card_pictures.py peg lepe

Each model is a ViT of 8 x 8 tokens with one encoding, trained for 6 epochs with seed 0. Encodings
without parameters are drawn untrained.
"""
import shutil
import sys
from pathlib import Path
from typing import Any

from mmposenc.commands import inspect, train
from mmposenc.terminal.messages import Parser, reporting_errors, suggestion_text

ROOT = Path(__file__).resolve().parents[1]
CONFIG = """_base_ = 'mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
model = dict(backbone=dict(patch_size=4, pool='gap', **{options!r}))
train_cfg = dict(max_epochs=6)
default_hooks = dict(checkpoint=dict(interval=6))
randomness = dict(seed=0)
"""


def token(kind: str, **options: Any) -> dict[str, Any]:
    return dict(pos_encoding=dict(type=f'mmposenc.{kind}', **options))


def relative(kind: str, **options: Any) -> dict[str, Any]:
    return dict(rel_pos_encoding=dict(type=f'mmposenc.{kind}', **options))


IRPES = [dict(type='mmposenc.IRPE', method=method)
         for method in ('euclidean', 'quantization', 'cross', 'product')]
#: By the name of its file: the picture that is kept, the encoding, and whether it is trained.
CARDS: dict[str, tuple[str, dict[str, Any], bool]] = {
    'peg': ('kernels', token('PEG'), True),
    'conv_mlp': ('kernels', token('ConvMLP'), True),
    'learned': ('similarity', token('LearnedPositionEmbedding'), True),
    'sincos': ('similarity', token('SinCosPositionEncoding'), False),
    'factorized': ('similarity', token('FactorizedPositionEmbedding'), True),
    'windowed': ('similarity', token('WindowedPositionEmbedding', window_shape=(4, 4)), True),
    'fourier': ('similarity', token('LearnableFourierFeatures'), True),
    'buckets': ('buckets', relative('CombinedRPE', encodings=IRPES), False),
    'bias': ('offsets', relative('RelativePositionBias'), True),
    'rotary': ('offsets', relative('RotaryEmbedding'), False),
    'log_cpb': ('offsets', relative('LogSpacedCPB'), True),
    'undirected': ('offsets', relative('UndirectedPositionBias'), True),
    'lepe': ('kernels', relative('LePE'), True),
    'liere': ('offsets', relative('LieRE'), True),
    'lookhere': ('offsets', relative('LookHere', undirected_heads=1), False),
}


def draw(name: str, folder: Path) -> None:
    """Train the model of a card where it has something to learn, and draw its picture."""
    picture, options, trained = CARDS[name]
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f'{name}.py'
    config.write_text(CONFIG.format(options=options))
    words = [str(config)]
    if trained:
        train.main([str(config), '--work-dir', str(folder / name)])
        words.append(str(folder / name / 'epoch_6.pth'))
    inspect.main([*words, '--out', str(folder / f'{name}-inspected')])
    target = ROOT / 'docs' / 'images' / 'cards' / f'{name}.png'
    target.parent.mkdir(exist_ok=True)
    shutil.copy(folder / f'{name}-inspected' / f'{picture}.png', target)


def main(argv: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument('names', nargs='*', help=f'of {", ".join(CARDS)}; default: all')
    args = parser.parse_args(argv)
    with reporting_errors(args):
        for name in args.names:
            if name not in CARDS:
                raise ValueError(f'there is no card {name!r}{suggestion_text(name, CARDS)}')
    for name in args.names or CARDS:
        draw(name, Path('work_dirs') / 'cards')


if __name__ == '__main__':
    main(sys.argv[1:])
