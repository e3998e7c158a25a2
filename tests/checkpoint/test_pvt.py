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
