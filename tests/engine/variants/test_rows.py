"""Rows of papers' tables as entries: put into a row's own model an entry gives that model, and what
is left out is said."""
import copy
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from helpers.variants import applied

from mmposenc import engine
from mmposenc.catalog import papers
from mmposenc.encodings import RelativeEncoding, TokenEncoding
from mmposenc.engine.config.models import build_model
from mmposenc.engine.variants.encodings import read_entries
from mmposenc.engine.variants.parsed import parse_config
from mmposenc.engine.variants.rows import encodings_for_any_size, rows_and_left_out
from mmposenc.lab.compare.running.planning import _checked_configs

SMALL = 'mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
#: Of each kind of model and of each way to leave a row out one.
FEW = ('cpvt/table16', 'irpe/table6', 'releases/swin', 'releases/vitdet')
#: Options of encodings that are sizes, which models fill in.
SIZES = ('grid_shape', 'table_size', 'window_size')
#: Whose arch brings a table of another size than the images'.
RELEASED_SIZES = ('releases/vitdet', 'releases/pretrained')


def described(cfg) -> tuple[list, dict]:
    """What stands in a model: its encodings with their options, where they stand, and what else
    says how it knows positions; and the shapes of all parameters."""
    cfg = copy.deepcopy(cfg)
    cfg.model.pop('teacher', None)
    # mmdet's ResNet reads numbers from tensors while it is built.
    on_cpu = 'ResNet' in cfg.model.backbone.type
    with torch.device('cpu' if on_cpu else 'meta'):
        model = build_model(cfg)
    found = []
    for name, module in model.named_modules():
        if isinstance(module, TokenEncoding | RelativeEncoding):
            options = {key: value for key, value in vars(module).items() if isinstance(
                value, bool | int | float | str | tuple) and key[0] != '_' and key not in SIZES}
            frozen = not any(each.requires_grad for each in module.parameters())
            parts = ' '.join(type(each).__name__ for each in module.modules())
            # A table for each head has a dimension more.
            parts += str([each.ndim for each in module.parameters()])
            found.append((name, parts, str(sorted(options.items())), frozen))
        for key in ('encoder_pos', 'key_pos', 'pool', 'positions', 'conv_projection'):
            value = vars(module).get(key)
            if isinstance(value, str | type(None) | dict) and key in vars(module):
                found.append((name, key, str(value), None))
    return found, {name: each.shape for name, each in model.state_dict().items()}


@cache
def model_of(name: str):
    return described(engine.load_config(str(papers.config_of_model(name))))


def others(shapes: dict) -> dict:
    """Parameters that are no encoding's."""
    return {name: shape for name, shape in shapes.items()
            if not any(part in name for part in ('pos_enc', 'context_pools'))}


def every(tables):
    return [name if name in FEW else pytest.param(name, marks=pytest.mark.slow)
            for name, table in tables.items() if any(row.model for row in table.rows)]


def entries_and_words(table, capsys):
    """The entries of a table, and what is said about rows that are left out."""
    try:
        return read_entries([f'paper::{table}']), capsys.readouterr().err
    except ValueError as error:  # All rows are.
        return [], str(error)


@pytest.mark.parametrize('table', every(papers.tables_by_id()))
def test_an_entry_in_a_rows_own_model_is_that_model(table, capsys):
    for entry in entries_and_words(table, capsys)[0]:
        name = entry.name
        row = papers.row(name.removeprefix('paper::'))
        cfg = applied(name, entry)
        cfg.model.backbone.pop('trainable', None)
        found, shapes = described(cfg)
        wanted, wanted_shapes = model_of(row.model)
        if table in RELEASED_SIZES:
            assert [each[:2] for each in found] == [each[:2] for each in wanted], name
        else:
            assert found == wanted and shapes == wanted_shapes, name


@pytest.mark.parametrize('table', every(papers.tables_by_id()))
def test_rows_that_differ_in_an_encoding_have_entries_that_differ(table, capsys):
    """And a row that is left out for another one has its encodings."""
    entries, said = entries_and_words(table, capsys)
    entries = {entry.name for entry in entries}
    rows, left_out = rows_and_left_out(f'paper::{table}')
    models = {name: model_of(papers.row(name.removeprefix('paper::')).model) for name, _, _ in rows}
    stands_for = {line.partition(' ')[0]: line.rpartition(' ')[2]
                  for line in said.splitlines() if ' those of ' in line}
    assert entries.isdisjoint(stands_for) and entries | set(stands_for) == set(models)
    for number in left_out:
        assert str(number) in said
    for name, like in stands_for.items():
        (first, shapes), (second, other_shapes) = models[name], models[like]
        if others(shapes) == others(other_shapes):  # the same model but for its encodings
            assert without_pool(first) == without_pool(second), (name, like)


def without_pool(parts):
    """What stands in a model, without how its tokens become one vector."""
    return [each for each in parts if each[1] != 'pool']


@pytest.mark.parametrize('backbone, tokens', [
    (dict(type='mmposenc.PVT', arch='v2-b0'), [dict(type='mmposenc.ConvMLP')]),
    (dict(type='mmposenc.MixVisionTransformer', embed_dims=32), [dict(type='mmposenc.ConvMLP')]),
    (dict(type='mmposenc.PVT', arch='v2-b0', pos_encoding=None), []),
    (dict(type='mmposenc.PVT', arch='v2-b0', pos_encoding=dict(type='mmposenc.PEG')),
     [dict(type='mmposenc.PEG')]),
    (dict(type='mmposenc.PVT', arch='v2-b2-linear', norm_eps=1e-5),
     [dict(type='mmposenc.ConvMLP', relu=True)])])
def test_encodings_that_a_class_brings(backbone, tokens):
    cfg = engine.load_config(
        'mmposenc::segmentation/segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512.py')
    cfg.model.backbone = backbone
    assert encodings_for_any_size(parse_config(cfg)).tokens == tokens


def test_what_no_entry_says_is_left_out_with_its_reason(capsys):
    entries = read_entries(['paper::cpvt/table16'])
    assert [entry.name for entry in entries] == ['paper::cpvt/table16/1']
    assert 'row 2 left out: backbone.conv_projection=[0] is no encoding' in capsys.readouterr().err
    with pytest.raises(ValueError, match='row 2 left out: backbone.conv_projection'):
        read_entries(['paper::cpvt/table16/2'])
    read_entries(['paper::cpvt/table5'])
    assert ('paper::cpvt/table5/3 left out: its encodings are those of '
            'paper::cpvt/table5/2') in capsys.readouterr().err
    none, first = read_entries(['none', 'peg', 'paper::cpvt/table1/1', 'paper::cpvt/table1'])[:2]
    assert none.name == 'none' and 'those of none' in capsys.readouterr().err
    assert first.name == 'peg'


@pytest.mark.parametrize('word, changes', [
    ('paper::releases/swinv2/1', dict(rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB'))),
    ('paper::releases/swin/1', dict(rel_pos_encoding=dict(
        type='mmposenc.RelativePositionBias', resize='geometric'))),
    ('paper::releases/vitdet/1', dict(
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
        rel_pos_encoding=dict(type='mmposenc.DecomposedRPE'))),
    ('paper::releases/mmdet/5', dict(pos_encoding=dict(type='mmposenc.SinCosPositionEncoding'))),
    ('paper::irpe/table6/2', dict(pos_encoding=None, cfg={'model.decoder.key_pos': None})),
    ('paper::cpvt/table3/1', dict(cfg={}))])
def test_a_row_is_a_word(word, changes):
    entry, = read_entries([word])
    assert entry.name == word
    assert {key: entry.changes[key] for key in changes} == changes


@pytest.mark.parametrize('word, said', [
    ('paper::cpvt/table66', "no table 'cpvt/table66'"),
    ('paper::cpvt/table6/9', "row '9' of cpvt/table6 must be a number from 1 to 8"),
    ('paper::cpvt/table4/1', "'ResNet-50', is not here: a ConvNet of others"),
    ('paper::context_pool/table1', 'rows 1, .* left out: '),
    ('peg+paper::cpvt/table6/2', "there is no encoding 'paper::cpvt/table6/2'")])
def test_wrong_words(word, said):
    with pytest.raises(ValueError, match=said):
        read_entries([word])


def test_a_table_of_a_small_model_leaves_out_what_it_cannot_have(capsys):
    """Block 3 of three; a row that is named by itself is refused."""
    rows = read_entries(['paper::cpvt/table6'])
    study = SimpleNamespace(base=parse_config(engine.load_config(SMALL)), sizes=(1.0,),
                            entries=rows)
    assert [row.label.partition(' (')[0] for row in rows] == [
        'none', '-1', '0', '3', '6', '10', '-1, 27x27']
    capsys.readouterr()
    names = [row.name for row in rows]
    assert [*_checked_configs(study, ['paper::cpvt/table6'])] == names[:3] + names[6:]
    assert 'paper::cpvt/table6/4 left out: does not fit' in capsys.readouterr().err
    with pytest.raises(ValueError, match='3 of 7 do not fit .*paper::cpvt/table6/8 would do'):
        _checked_configs(study, [names[4]])
    with pytest.raises(ValueError, match='paper::cpvt/table6/5.* does not fit mmposenc.DeiT'):
        study.entries = rows[4:5]
        _checked_configs(study, [])
