"""metafile.yml of the classification configs, from the rows of docs/models.md."""
from __future__ import annotations

import re

PAPERS = {
    'deit': ('DeiT with other encodings', 'Training data-efficient image transformers & '
             'distillation through attention', '2012.12877'),
    'cpvt': ('CPVT', 'Conditional Positional Encodings for Vision Transformers', '2102.10882'),
    'irpe': ('DeiT with iRPE', 'Rethinking and Improving Relative Position Encoding for Vision '
             'Transformer', '2107.14222'),
    'swin': ('Swin with other encodings', 'Swin Transformer: Hierarchical Vision Transformer using '
             'Shifted Windows', '2103.14030'),
    'pvt': ('PVT with other encodings', 'Pyramid Vision Transformer: A Versatile Backbone for '
            'Dense Prediction without Convolutions', '2102.12122'),
    'transfer': ('Fine-grained transfer', 'Rethinking and Improving Relative Position Encoding for '
                 'Vision Transformer', '2107.14222'),
    'context_pool': ('ContextPool', 'Efficient Representation Learning via Adaptive Context '
                     'Pooling', '2207.01844')}
DATA = {'in1k': 'ImageNet-1k', 'cars': 'Stanford Cars', 'cub': 'CUB-200-2011',
        'cifar10': 'CIFAR-10'}
_ROW = r'^\| \[(\S+)\]\(\S*/{folder}/\S+\) \| ([\d,]+) \| .*?\| .*?\| ([\d,]+) \|'


def classification_metafile(page: str, folder: str) -> str:
    """The metafile of one folder of classification configs, as OpenMMLab's mim reads it.

    Args:
        page: docs/models.md, which has the parameters and multiply-accumulates.
        folder: name of a folder in configs/classification.

    Returns:
        YAML: a collection with its paper, and a model for each row of the page.

    Raises:
        ValueError: the page has no row of that folder.
    """
    rows = re.findall(_ROW.format(folder=folder), page, re.MULTILINE)
    if not rows:
        raise ValueError(f'page has no row of {folder!r}; run python tools/model_table.py')
    name, title, paper = PAPERS[folder]
    path = f'configs/classification/{folder}'
    text = (f'Collections:\n  - Name: {name}\n    Paper:\n'
            f'      URL: https://arxiv.org/abs/{paper}\n      Title: "{title}"\n\n'
            '# Made by python tools/model_table.py. Without weights or results: none was trained '
            'here.\nModels:\n')
    for model, parameters, macs in rows:
        text += (f'  - Name: {model}\n    In Collection: {name}\n'
                 f'    Config: {path}/{model}.py\n    Metadata:\n'
                 f'      Training Data: {DATA[model.rpartition("_")[2]]}\n'
                 f'      Parameters: {parameters.replace(",", "")}\n'
                 f'      FLOPs: {macs.replace(",", "")}000000\n')
    return text
