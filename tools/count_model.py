"""Count the parameters and multiply-accumulates of classification configs, as metafiles list them.

    python tools/count_model.py CONFIG ...    # says what each config builds
    python tools/count_model.py               # all that metafiles list; fails where they differ
"""
import sys
from pathlib import Path

import torch
import yaml
from torch import nn

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.backbones import count_macs
from mmposenc.command_line import Parser, reported
from mmposenc.engine import load_config
from mmposenc.engine.config.models import build_model

ROOT = Path(__file__).resolve().parents[1]


def build_without_weights(path: Path) -> nn.Module:
    """The model of a config, on the meta device, without its teacher. (A ResNet upstream reads
    numbers from tensors while it is built, so it has weights.)"""
    cfg = load_config(str(path))
    cfg.model.pop('teacher', None)
    with torch.device('cpu' if 'ResNet' in cfg.model.backbone.type else 'meta'):
        return build_model(cfg)


def input_size(path: Path) -> tuple[int, int]:
    """Height and width of the images that a config tests at."""
    dataset = load_config(str(path)).test_dataloader.dataset
    for step in dataset.pipeline:
        if step.type == 'CenterCrop':
            return step.crop_size, step.crop_size
    if dataset.type == 'CIFAR10':
        return 32, 32
    raise ValueError(f'{path}: test_dataloader.dataset.pipeline has no CenterCrop, which would '
                     f'say at which size to count')


def count(path: Path) -> dict[str, int]:
    """Parameters, and multiply-accumulates of one image to a million, under metafiles' names."""
    model = build_without_weights(path)
    macs = count_macs(model, input_size(path), values_as_released=True, pooled_means=False)
    return {'Parameters': sum(p.numel() for p in model.parameters()),
            'FLOPs': round(macs / 1e6) * 10 ** 6}


def listed(path: Path) -> dict[str, int] | None:
    """What the metafile beside a config says it builds; None where it says nothing."""
    metafile = path.parent / 'metafile.yml'
    models = yaml.safe_load(metafile.read_text())['Models'] if metafile.is_file() else []
    found = next((m['Metadata'] for m in models if m['Name'] == path.stem), {})
    keys = ('Parameters', 'FLOPs')
    return {key: found[key] for key in keys} if all(key in found for key in keys) else None


def main(argv: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument('configs', nargs='*', type=Path, metavar='CONFIG')
    args = parser.parse_args(argv)
    folder = ROOT / 'configs' / 'classification'
    every = [path for file in sorted(folder.glob('*/metafile.yml'))
             for path in sorted(file.parent.glob('*.py'))]
    wrong = 0
    for path in args.configs or every:
        with reported(args):
            counted, said = count(path), listed(path)
        line = ', '.join(f'{key}: {value}' for key, value in counted.items())
        differs = counted != said
        wrong += differs
        print(f'{path.stem}  {line}' + (f'  (metafile: {said})' if differs else ''), flush=True)
    if wrong:
        sys.exit(f'error: metafiles say otherwise of {wrong} configs')


if __name__ == '__main__':
    main()
