"""Rows of papers' tables as entries: put into a row's own model an entry gives that model, and what
is left out is said."""
import copy

import pytest
import torch
from helpers.scripts import short
from helpers.variants import applied

from mmposenc import engine
from mmposenc.catalog import papers
from mmposenc.encodings import RelativeEncoding, TokenEncoding
from mmposenc.engine.config.models import build_model
from mmposenc.engine.variants.encodings import read_entries
from mmposenc.engine.variants.model_encodings import rows_and_left_out
from mmposenc.lab.compare.running.planning import fitting_configs
from mmposenc.lab.compare.study.config import StudyConfig

SMALL = 'mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
#: Of each kind of model and of each way to leave a row out one.
FEW = ('cpvt/table16', 'irpe/table6', 'releases/pvt-v2', 'releases/swin', 'releases/vitdet')
#: Options of encodings that are sizes, which models fill in.
SIZES = ('grid_shape', 'sides', 'table_size', 'window_size')
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
    # A table that an entry brings has the size of the images in training.
    return found, {name: each.shape for name, each in model.state_dict().items()
                   if 'pos_encodings' not in name}


@pytest.mark.parametrize('table', short([
    name for name, table in papers.tables_by_id().items() if any(row.model for row in table.rows)
], *FEW))
def test_an_entry_in_a_rows_own_model_is_that_model(table):
    rows, left_out = rows_and_left_out(f'paper::{table}')
    assert len(rows) + len(left_out) == len(papers.table(table).rows)
    for name, _, _ in rows:
        entry, = read_entries([name])
        row = papers.row(name.removeprefix('paper::'))
        cfg = applied(name, entry)
        cfg.model.backbone.pop('trainable', None)
        found, shapes = described(cfg)
        wanted, wanted_shapes = described(
            engine.load_config(str(papers.config_of_model(row.model))))
        if table in RELEASED_SIZES:
            assert [each[:2] for each in found] == [each[:2] for each in wanted], name
        else:
            assert found == wanted and shapes == wanted_shapes, name


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
    made = {**entry.changes.arguments(), 'cfg': entry.changes.cfg}
    assert {key: made[key] for key in changes} == changes


def test_a_table_of_a_small_model_leaves_out_what_it_cannot_have(capsys):
    """Block 3 of three; a row that is named by itself is refused."""
    rows = read_entries(['paper::cpvt/table6'])
    base = StudyConfig(engine.load_config(SMALL))
    assert [row.label.partition(' (')[0] for row in rows] == [
        'none', '-1', '0', '3', '6', '10', '-1, 27x27']
    capsys.readouterr()
    names = [row.name for row in rows]
    fitting = fitting_configs(base, rows, (1.0,), ['paper::cpvt/table6'])
    assert [*fitting] == names[:3] + names[6:]
    assert 'paper::cpvt/table6/4 left out: does not fit' in capsys.readouterr().err
    with pytest.raises(ValueError, match='3 of 7 do not fit .*paper::cpvt/table6/8 would do'):
        fitting_configs(base, rows, (1.0,), [names[4]])
    with pytest.raises(ValueError, match='paper::cpvt/table6/5.* does not fit mmposenc.DeiT'):
        fitting_configs(base, rows[4:5], (1.0,), [])
