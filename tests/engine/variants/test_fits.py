"""Every encoding in every kind of model, as the table of docs/compared.md says."""
import copy
from contextlib import nullcontext

import pytest
from helpers.scripts import short
from helpers.variants import check_fits

from mmposenc import engine
from mmposenc.backbones.encodings_of_model import encoding_lines
from mmposenc.encodings import ENCODINGS, CombinedRPE, ConvMLP, TokenEncoding
from mmposenc.engine.config.models import build_bare
from mmposenc.engine.config.nodes import listed
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.applying import with_entry_checked
from mmposenc.engine.variants.encodings import read_entries
from mmposenc.signatures import parameters_of

SMALL, DETECTION = 'mmposenc::classification/small/', 'mmposenc::detection/'
#: Configs, and what makes their models small.
MODELS = {
    'PVT': (SMALL + 'pvt-micro-none_1xb32-40e_mnist5k.py', {}),
    'DeiT': (SMALL + 'deit-micro-none_1xb32-40e_mnist5k.py', {}),
    'Swin': ('mmposenc::classification/swin/swin-t_8xb128_in1k.py', {
        'model.backbone.arch': None, 'model.backbone.embed_dims': 32,
        'model.backbone.num_layers': [2, 2], 'model.backbone.num_heads': [2, 4],
        'model.backbone.window_size': 7}),
    'DETR': (DETECTION + 'detr/detr_r50_8xb2-150e_coco.py', {
        'model.backbone.depth': 18, 'model.backbone.base_channels': 4,
        'model.backbone.stem_channels': 4, 'model.neck.in_channels': [32],
        'model.encoder.num_layers': 2, 'model.decoder.num_layers': 1}),
    'Deformable DETR': (DETECTION + 'small/deformable-detr_r18-w16_1xb4-50e_bccd.py', {}),
    'RT-DETR': (DETECTION + 'small/rt-detr_r18vd-w16_1xb4-50e_trees.py', {
        'model.decoder.num_layers': 1})}


@pytest.fixture(scope='module')
def configs():
    found = {}
    for model, (name, options) in MODELS.items():
        found[model] = engine.load_config(name)
        engine.override_in_place(found[model], copy.deepcopy(options))
    return found


def expected(cls, model):
    """The factors of the trained size that a class and a model go together at."""
    if model == 'Deformable DETR' and not issubclass(cls, TokenEncoding) or (
            'DETR' in model and cls is ConvMLP):
        return []
    largest = {'max_tokens', 'max_size'} & set(parameters_of(cls))
    # RT-DETR's images of trees have 13 x 13 cells in the neck, and at most 25 x 42 are expected.
    return [1] if largest and model not in ('Swin', 'RT-DETR') else [1, 2]


@pytest.mark.parametrize('name', short(dict.fromkeys(
    cls.__name__ for cls in ENCODINGS.values() if cls is not CombinedRPE), 'PEG', 'IRPE'))
def test_what_fits(name, configs):
    """The first of the names of each class."""
    cls = ENCODINGS[name]
    entry, = read_entries([next(iter(vars(cls)['variants']))])
    for model, cfg in configs.items():
        for size in (1, 2):
            fits = size in expected(cls, model)
            with nullcontext() if fits else pytest.raises(ValueError):
                check_fits(cfg, entry, [size])


@pytest.mark.parametrize('word, absolute, between', [
    ('peg', None, 'PEG'), ('none', None, None), ('sincos+peg', 'sine', 'PEG'),
    ('keep+peg', 'sine', 'PEG'), ('learned', dict(type='mmposenc.LearnedPositionEmbedding'), None)])
def test_a_neck_in_a_list_of_necks(word, absolute, between, configs):
    """Its class says that it takes encodings, and what replaces its sines is said."""
    cfg = copy.deepcopy(configs['RT-DETR'])
    cfg.model.neck = [dict(type='ChannelMapper', in_channels=[32, 64, 128], out_channels=128,
                           kernel_size=1, num_outs=3),
                      {**cfg.model.neck, 'in_channels': [128] * 3}]
    parsed = ParsedConfig(cfg)
    assert parsed.insertion.path == ('neck', '1', 'encoder')
    changed = with_entry_checked(parsed, read_entries([word])[0], {1.0: (128, 96)})
    neck = changed.model.neck[1]
    assert neck['encoder_pos'] == absolute and neck['encoder']['layer_cfg']
    found = listed(neck['encoder']['pos_encoding'])
    assert [each['type'] for each in found] == ([f'mmposenc.{between}'] if between else [])
    assert 'encoder_pos' not in cfg.model.neck[1]
    said = [line for line in encoding_lines(build_bare(changed, 'meta')) if 'in place of' in line]
    new = between or ('LearnedPositionEmbedding' if absolute else 'none')
    assert said == ([] if absolute == 'sine' else [
        f'pos_encoding: {new} in place of SinCosPositionEncoding in the neck'])
