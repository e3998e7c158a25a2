"""The table of docs/models.md: what the classification configs build, beside what papers say."""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from ..backbones import count_macs
from .config import load_config

TITLES = {
    'deit': 'DeiT: absolute, relative and no encodings', 'cpvt': 'CPVT: conditional encodings',
    'irpe': 'iRPE: image relative encodings', 'swin': 'Swin', 'pvt': 'PVT',
    'transfer': 'Fine-grained transfer', 'context_pool': 'ContextPool'}
INTRO = """# Classification models

Made by `python tools/model_table.py` from the configs in `configs/classification`; don't edit.
Nothing here was trained by this project: accuracies are the papers', as each config's header says
them, and "-" where the paper's number was not checked or there is none. See docs/results.md for
what was trained.

- Parameters and multiply-accumulates (MACs, in millions, head included, one image of the size the
  config tests at: 224 x 224, or 384 or CIFAR-10's 32 where its name says so) are counted on the
  built model. MACs are matrix products and convolutions; value terms of iRPE are counted as in its
  release, a vector for each pair of tokens, and cost less here.
- "Reference" is the paper's or the release's number; the difference to it follows: "=" where they
  agree to the last digit given.
"""
_HEADER = ('| config | parameters | reference | difference | MACs (M) | reference | difference '
           '| top-1 in the paper |\n|---|---:|---:|---:|---:|---:|---:|---:|\n')


@dataclass
class Reference:
    """What a config's header says: parameters to a unit of ``unit``, MACs in millions, top-1."""

    parameters: float | None
    unit: int
    macs: int | None
    top1: str | None


def read_reference(path: Path) -> Reference:
    """Read the comment that a config starts with."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith('#'):
            break
        lines.append(line.lstrip('# '))
    text = ' '.join(lines)
    parameters = re.search(r'([\d,.]+)( M)? parameters', text)
    macs = re.search(r'([\d,]+) M MACs', text)
    top1 = re.search(r'top-1 ([\d.]+\d)', text)
    number, unit = None, 1
    if parameters:
        number = float(parameters.group(1).replace(',', ''))
        if parameters.group(2):
            digits = len(parameters.group(1).partition('.')[2])
            unit = 10 ** (6 - digits)
            number *= 1e6
    return Reference(number, unit, int(macs.group(1).replace(',', '')) if macs else None,
                     top1.group(1) if top1 else None)


def build_without_weights(path: Path) -> nn.Module:
    """The model of a config, on the meta device, without its teacher. (A ResNet upstream reads
    numbers from tensors while it is built, so it has weights.)"""
    cfg = load_config(str(path))
    init_default_scope(cfg.default_scope)
    model = cfg.model.to_dict()
    model.pop('teacher', None)
    with torch.device('cpu' if 'ResNet' in model['backbone']['type'] else 'meta'):
        built: nn.Module = MODELS.build(
            dict(model, data_preprocessor=cfg.data_preprocessor.to_dict()))
    return built


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


def table_row(path: Path, link: str) -> str:
    """One line of the table.

    Args:
        path: the config.
        link: where the table finds it.
    """
    reference, model = read_reference(path), build_without_weights(path)
    parameters = sum(p.numel() for p in model.parameters())
    macs = count_macs(model, input_size(path), values_as_released=True) / 1e6
    cells = [f'[{path.stem}]({link})', f'{parameters:,}']
    if reference.parameters is None:
        cells += ['-', '-']
    else:
        unit = reference.unit
        said = (f'{reference.parameters:,.0f}' if unit == 1
                else f'{reference.parameters / 1e6:g} M')
        off = round(parameters / unit) * unit - round(reference.parameters)
        cells += [said, '=' if off == 0 else f'{off:+,}']
    cells.append(f'{macs:,.0f}')
    if reference.macs is None:
        cells += ['-', '-']
    else:
        cells += [f'{reference.macs:,}', '=' if round(macs) == reference.macs
                  else f'{100 * (macs / reference.macs - 1):+.2f} %']
    return '| ' + ' | '.join([*cells, reference.top1 or '-']) + ' |\n'


def model_table(configs: Path, link_to: str = '../configs/classification') -> str:
    """The whole page.

    Args:
        configs: folder with a folder for each method.
        link_to: that folder, as seen from the page.
    """
    page = INTRO
    for folder, title in TITLES.items():
        page += f'\n## {title}\n\n{_HEADER}'
        for path in sorted((configs / folder).glob('*.py')):
            page += table_row(path, f'{link_to}/{folder}/{path.name}')
    return page
