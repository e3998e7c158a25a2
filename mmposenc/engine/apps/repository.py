"""A model as the folder of a repository: weights, config and card, of which nothing runs."""
from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from mmengine.config import Config
from mmengine.registry import Registry, init_default_scope
from torch import nn

import mmposenc
from mmposenc.checkpoint import hub, write_checkpoint
from mmposenc.checkpoint.integrity import whole_file
from mmposenc.encodings import ENCODINGS
from mmposenc.names import CLASSES

from ..config.testing import TASKS, scope_of

WEIGHTS, CONFIG, CARD = 'model.safetensors', 'config.py', 'README.md'
#: Keys of a config that predictions need; paths of data sets are left out.
_KEYS = ('default_scope', 'model', 'data_preprocessor', 'visualizer')
_PIPELINES = {'mmdet': 'object-detection', 'mmseg': 'image-segmentation',
              'mmpretrain': 'image-classification'}
#: Operators of mmcv that sections name which ask no registry.
_OPERATORS = ('nms', 'soft_nms', 'nms_match', 'nms_rotated', 'RoIAlign', 'RoIPool')
#: Registered classes that read pickles or hand an argument to eval.
_REFUSED = ('CameraMotionCompensation', 'ImageToImageRetriever', 'RAM', 'RAMNormal', 'RAMOpenset')
_SCOPES = ('mmposenc', 'mmdet', 'mmseg', 'mmpretrain', 'mmengine')


def write(model: Any, folder: str | Path, name: str, metrics: dict[str, float] | None = None, *,
          overwrite: bool = False) -> None:
    """Write a model of :func:`mmposenc.load` as a repository.

    Args:
        model: with its weights, ``cfg`` and ``dataset_meta``.
        folder: for ``model.safetensors``, ``config.py`` and ``README.md``.
        name: of the model, for the card: 'owner/name', or a folder.
        metrics: numbers of a test, for the card.
        overwrite: replace these files in ``folder``.

    Raises:
        ValueError: such files are there, or the config names what no other machine has.
    """
    folder = Path(folder)
    there = [file for file in (WEIGHTS, CONFIG, CARD) if (folder / file).exists()]
    if there and not overwrite:
        raise ValueError(f'{folder} holds {", ".join(there)}: give another folder, or --overwrite')
    cfg = _config(model)
    check_types(cfg)
    if read_text(text := cfg.pretty_text, CONFIG) != cfg.to_dict():
        raise ValueError('the config holds values that cannot be written as text')
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder / WEIGHTS, model.state_dict(), {'library': 'mmposenc'})
    for file, content in ((CONFIG, text), (CARD, _card(model, name, metrics or {}))):
        with whole_file(folder / file) as partial:
            partial.write_text(content)


def _config(model: Any) -> Config:
    cfg = model.cfg
    kept = {key: cfg[key] for key in _KEYS if cfg.get(key) is not None}
    dataset = cfg.test_dataloader.dataset
    while 'pipeline' not in dataset and 'dataset' in dataset:
        dataset = dataset.dataset
    kept['test_dataloader'] = dict(dataset=dict(
        type=dataset.type, pipeline=dataset.get('pipeline') or [], metainfo=dict(
            classes=tuple(model.dataset_meta['classes']),
            palette=[tuple(colour) for colour in model.dataset_meta['palette']])))
    plain = Config(kept).to_dict()
    for node in _nodes(plain):
        if isinstance(node.get('init_cfg'), dict) and node['init_cfg'].get('type') == 'Pretrained':
            node['init_cfg'] = None  # the weights are in the repository
    if 'visualizer' in plain:
        plain['visualizer'].pop('vis_backends', None)
    return Config(plain)


def _card(model: nn.Module, name: str, metrics: dict[str, float]) -> str:
    cfg: Any = model.cfg
    scope, classes = scope_of(cfg), model.dataset_meta['classes']  # type: ignore[index]
    used = sorted({type(each).__name__ for each in model.modules()} & set(ENCODINGS))
    data = str(cfg.test_dataloader.dataset.get('type'))
    head: dict[str, Any] = dict(library_name='mmposenc', pipeline_tag=_PIPELINES[scope],
                                tags=['mmposenc', scope])
    measured = 'No test result was given.'
    if metrics:
        head['model-index'] = [dict(name=name.rpartition('/')[2], results=[dict(
            task=dict(type=_PIPELINES[scope]), dataset=dict(name=data, type=data),
            metrics=[dict(type=key, value=value) for key, value in metrics.items()])])]
        rows = [f'| {key} | {value:g} |' for key, value in metrics.items()]
        measured = '\n'.join([f'| on {data} | |', '|---|---|', *rows])
    shown = ', '.join(classes[:20]) + f' and {len(classes) - 20} more' * (len(classes) > 20)
    source = f'hf://{name}' if re.fullmatch(r'[\w.-]+/[\w.-]+', name) else name
    return f'''---
{yaml.safe_dump(head, sort_keys=False)}---

# {name.rpartition("/")[2]}

{TASKS[scope].capitalize()} by {type(model).__name__} with {type(model.backbone).__name__}, {
    sum(each.numel() for each in model.parameters()):,} parameters.
Position encodings: {", ".join(used) or "none of mmposenc"}. Classes: {shown}.

```python
import mmposenc

model = mmposenc.load('{source}')
mmposenc.predict(model, 'photo.jpg').show()
```

## Results

{measured}

Written by mmposenc {mmposenc.__version__}. `config.py` is read as text and the weights are
safetensors: loading them runs no code of this repository.
'''


def read(source: str | Path) -> tuple[Config, str]:
    """The config of a repository, ``hf://owner/name`` or a folder, and the name of its weights.

    Raises:
        ValueError: a config that holds more than values, or names classes that are not registered;
            errors of :func:`mmposenc.checkpoint.hub.fetch`.
    """
    named = hub.is_name(source)
    path = hub.fetch(str(source), CONFIG) if named else Path(source) / CONFIG
    cfg = Config(read_text(path.read_text(), f'{source}: {CONFIG}'))
    check_types(cfg)
    return cfg, str(source) if named else str(Path(source) / WEIGHTS)


def read_text(text: str, where: str) -> dict[str, Any]:
    """The values that a dumped config assigns; it is not run.

    Raises:
        ValueError: it holds something else than names and values.
    """
    try:
        found = {}
        for line in ast.parse(text).body:
            if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Name):
                raise ValueError(f'line {line.lineno} is no NAME = VALUE')
            found[line.targets[0].id] = _value(line.value)
    except (ValueError, SyntaxError, TypeError, RecursionError) as error:
        raise ValueError(f'{where} is not run, and holds more than values: {error}') from error
    return found


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        if node.func.id == 'dict' and all(each.arg for each in node.keywords):
            return {str(each.arg): _value(each.value) for each in node.keywords}
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_value(key): _value(value)  # type: ignore[arg-type]
                for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.List):
        return [_value(each) for each in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(each) for each in node.elts)
    return ast.literal_eval(node)


def check_types(cfg: Config) -> None:
    """Raises ValueError for what the three libraries would make code of: a ``type`` that is not a
    registered name, which mmengine imports and calls; a text that holds a call, which some classes
    hand to eval; classes that read pickles."""
    init_default_scope(scope := scope_of(cfg))
    plain = cfg.to_dict()
    (plain.get('test_dataloader') or {}).get('dataset', {}).pop('metainfo', None)
    for node in _nodes(plain):
        for key, value in node.items():
            if isinstance(value, str) and '(' in value:
                raise ValueError(f'{key}={value!r}: a repository may hold no calls')
        kind = node.get('type')
        if kind is not None and not (isinstance(kind, str) and _registered(kind, scope)):
            raise ValueError(f'type={kind!r}: a repository may name registered classes of '
                             f'{", ".join(_SCOPES)}, and this is none')


def _registered(kind: str, scope: str) -> bool:
    owner, _, name = kind.rpartition('.')
    if kind in _OPERATORS:
        return True
    if name in _REFUSED or owner and owner not in _SCOPES:
        return False
    if owner == 'mmposenc':
        return name in ENCODINGS or any(name in table for table in CLASSES.values())
    for library in (owner,) if owner else (scope, 'mmengine'):  # which has mmcv's classes, too
        for each in vars(importlib.import_module(f'{library}.registry')).values():
            if isinstance(each, Registry):
                each.import_from_location()
                if name in each.module_dict:
                    return True
    return False


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every dict inside."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(
            node, (list, tuple)) else ():
        yield from _nodes(child)
