"""Converters account for every parameter."""
import pytest
import torch

from mmposenc.checkpoint import convert, convert_with_report
from mmposenc.checkpoint.rules import Rule, apply_rules


def test_unknown_parameters_are_all_named():
    state = {'norm.weight': torch.zeros(2), 'block9.q': torch.zeros(1),
             'what.is.this': torch.ones(1)}
    with pytest.raises(ValueError, match="source='pvt' has no rule for 2 of 3 parameters: "
                                         'block9.q, what.is.this'):
        convert(state, 'pvt')


def test_unknown_source_is_named():
    with pytest.raises(ValueError, match="source='pvt2' must be one of 'pvt', 'twins'"):
        convert({}, 'pvt2')


def test_mmdets_block_numbers_shift_only_where_a_table_stands():
    state = {'layers.0.1.0.pos_embed': torch.zeros(1, 4, 2),
             'layers.0.1.1.norm1.weight': torch.full((2,), 1.0),
             'layers.1.1.0.norm1.weight': torch.full((2,), 2.0),
             'layers.1.1.0.attn.attn.in_proj_weight': torch.arange(12.).view(6, 2),
             'layers.1.1.0.ffn.layers.0.weight': torch.ones(4, 2, 1, 1)}
    converted = convert(state, 'mmdet-pvt')
    assert converted['backbone.stages.0.blocks.0.norm1.weight'].tolist() == [1, 1]
    assert converted['backbone.stages.1.blocks.0.norm1.weight'].tolist() == [2, 2]
    assert converted['backbone.stages.1.blocks.0.attn.q.weight'].tolist() == [[0, 1], [2, 3]]
    assert converted['backbone.stages.1.blocks.0.attn.kv.weight'].shape == (4, 2)
    assert converted['backbone.stages.1.blocks.0.mlp.fc1.weight'].shape == (4, 2)
    assert 'backbone.stages.0.pos_encodings.at.before.0.pos_embed' in converted
    assert len(converted) == 6


def test_dropped_parameters_come_with_a_reason():
    rules = (Rule(r'old\..*', None, 'not used since 1.0'), Rule(r'a\.(\d)', r'b.\1'))
    converted = apply_rules({'old.x': torch.zeros(1), 'a.3': torch.ones(1)}, rules, 'test')
    assert converted.dropped == {'old.x': 'not used since 1.0'}
    assert list(converted.state_dict) == ['b.3']
    assert convert_with_report({'norm.bias': torch.zeros(1)}, 'pvt').dropped == {}


def test_colliding_names_are_an_error():
    rules = (Rule(r'[ab]', 'c'),)
    with pytest.raises(ValueError, match='b becomes c, which another'):
        apply_rules({'a': torch.zeros(1), 'b': torch.zeros(1)}, rules, 'test')
