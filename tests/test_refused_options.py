"""Options that are refused: each is an error that names it, its value and what is required, where
the class is built. Those of calls are in the rooms' own tests, those of commands in
tests/tools/wrong_command_lines.yaml."""
import re
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from helpers import tiny_detr
from helpers.tiny_backbones import EOMT
from helpers.upstream_configs import build as build_drop_in
from mmengine.config import Config

import mmposenc
from mmposenc import attention
from mmposenc.encodings import ENCODINGS, PlacedEncodings, TokenEncoding, build_encoding
from mmposenc.functional import bucket_ids
from mmposenc.signatures import parameters_of

#: For arguments of encodings without a default.
SIZES = dict(head_dims=8, num_heads=2, embed_dims=8, window_size=(3, 3), grid_shape=(3, 3),
             max_size=(3, 3), max_tokens=9, window_shape=(3, 3))
#: What may be below zero.
ANY_NUMBER = ('first', 'turns', 'layer_slopes')
#: Backbones that need more than their arch.
BACKBONES = {'EoMT': partial(mmposenc.EoMT, **EOMT), 'SAM': partial(
    mmposenc.ViT, img_size=28, patch_size=4, embed_dims=16, num_layers=4, num_heads=2, pool=None,
    window_size=3, global_blocks=(1, 3), final_norm=False,
    pos_encoding=dict(type='LearnedPositionEmbedding'),
    rel_pos_encoding=dict(type='DecomposedRPE'))}
DETECTORS = {**tiny_detr.FAMILY, 'RTDETR': tiny_detr.rtdetr, 'RFDETR': tiny_detr.rfdetr}


def sizes_of(name):
    return {key: SIZES[key] for key, each in parameters_of(ENCODINGS[name]).items()
            if each.default is each.empty and key in SIZES}


def detector(name, changes):
    cfg = Config(DETECTORS[name]())
    cfg.merge_from_dict(changes)
    return tiny_detr.build(cfg._cfg_dict)


BUILD = {
    'encodings': lambda name, options: ENCODINGS[name](**{**sizes_of(name), **options}),
    'places of encodings': lambda _, options: PlacedEncodings(
        *options.values(), num_blocks=2, embed_dims=4),
    'configs of encodings': lambda _, cfg: build_encoding(
        cfg, TokenEncoding, 'pos_encoding', embed_dims=4),
    'attention': lambda name, options: getattr(attention, name)(
        **{'embed_dims': 8, 'num_heads': 2, **options}),
    'backbones': lambda name, options: (BACKBONES.get(name) or getattr(mmposenc, name))(**options),
    'detectors': detector,
    'pixel decoders': lambda name, options: tiny_detr.build(
        tiny_detr.pixel_decoder(name, **options)),
    'drop-ins': lambda name, options: build_drop_in(*name.split(), **options),
    'others': lambda name, options: getattr(mmposenc, name)(**options),
    'buckets': lambda _, options: bucket_ids(**{'hw_query': (2, 3), **options})}


def tuples(value):
    if isinstance(value, dict):
        return {key: tuples(each) for key, each in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def flat(text):
    """A list is told as a tuple is."""
    return text.replace('[', '(').replace(']', ')')


TABLE = yaml.safe_load(Path(__file__).with_name('refused_options.yaml').read_text())


@pytest.mark.parametrize('kind, name, options, said', [
    pytest.param(kind, name, *row, id=f'{name}, {row[1]}') for kind, names in TABLE.items()
    for name, rows in names.items() for row in rows])
def test_a_refused_option_is_named(kind, name, options, said):
    device = 'meta' if kind == 'backbones' else 'cpu'
    with torch.device(device), pytest.raises((TypeError, ValueError)) as error:
        BUILD[kind](name, tuples(options))
    assert type(error.value) is ValueError or kind == 'drop-ins'
    parts = map(re.escape, flat(said).split('...'))
    assert re.search('.*'.join(parts), flat(str(error.value))), error.value


@pytest.mark.parametrize('name', [name for name in ENCODINGS if name != 'CombinedRPE'])
def test_every_bad_number_and_unknown_name_of_an_encoding_is_told(name):
    """Numbers below zero, sides of zero and names that there are not, an argument at a time."""
    good = sizes_of(name)
    for key, each in parameters_of(ENCODINGS[name]).items():
        value, kinds = {**{key: each.default}, **good}[key], str(each.annotation)
        if key in ANY_NUMBER or isinstance(value, bool):
            continue
        values = []
        if isinstance(value, (int, float)):
            values = [-type(value)(1), *([type(value)(0)] if value and key != 'max_offset' else [])]
        elif isinstance(value, str) or value is None and 'str' in kinds:
            values = ['nonsense']
        elif isinstance(value, tuple) or value is None and 'tuple' in kinds:
            values = [(0, 0)]
        for bad in values:
            told = 'no error'
            try:
                ENCODINGS[name](**{**good, key: bad})
            except Exception as error:
                told = f'{type(error).__name__}: {error}'
            assert told.startswith('ValueError') and f'{key}={bad!r}' in told, (
                f'{name}: {key}={bad!r} must be a ValueError that says so, as those of checks.py; '
                f'it was {told}')
