"""Two-way tables of names."""
import pytest
import torch

from mmposenc.checkpoint import convert, convert_back
from mmposenc.checkpoint.rules import (
    Pair,
    Rule,
    apply_rules,
    joined_pair,
    rules_to_ours,
    rules_to_theirs,
    same_name_pairs,
)

PAIRS = (*same_name_pairs('blocks.{n}.norm1.{p}'), Pair('a.{n}.{m}', 'backbone.b.{m}.x.{n}'),
         joined_pair(('l{n}.q.{p}', 'l{n}.k.{p}'), 'backbone.{n}.qk.{p}'),
         Pair('flat', 'backbone.cube', lambda flat: flat.view(2, 3), lambda cube: cube.flatten()))


def both_ways(state):
    ours = apply_rules(state, rules_to_ours(PAIRS), 'x').state_dict
    return ours, apply_rules(ours, rules_to_theirs(PAIRS), 'x').state_dict


def test_names_and_tensors_go_both_ways() -> None:
    state = {'blocks.11.norm1.bias': torch.randn(3), 'a.4.07': torch.randn(2),
             'l0.q.weight': torch.randn(2, 3), 'l0.k.weight': torch.randn(2, 3),
             'flat': torch.randn(6)}
    ours, theirs = both_ways(state)
    assert set(ours) == {'backbone.blocks.11.norm1.bias', 'backbone.b.07.x.4',
                         'backbone.0.qk.weight', 'backbone.cube'}
    assert torch.equal(ours['backbone.0.qk.weight'],
                       torch.cat((state['l0.q.weight'], state['l0.k.weight'])))
    assert ours['backbone.cube'].shape == (2, 3)
    assert set(theirs) == set(state)
    assert all(torch.equal(theirs[name], value) for name, value in state.items())


@pytest.mark.parametrize('name, said', [
    *((f'l3.{part}.bias', f'l3.{part}.bias is there without l3') for part in 'qk'),
    *((name, "'x' has no rule for 1 of 1 parameters") for name in (
        'blocks.x.norm1.bias', 'blocks.1.norm1.scale', 'blocks11norm1.bias'))])
def test_parts_alone_and_other_places_are_named(name, said) -> None:
    with pytest.raises(ValueError, match=said):
        both_ways({name: torch.ones(2)})


def test_what_timm_has_no_place_for_is_named() -> None:
    table = {'pos_encodings.at.before.0.pos_embed': torch.ones(1, 4, 2)}
    with pytest.raises(ValueError, match="rel_pos_encoding.table_k have no place .*'deit'"):
        convert_back({**table, 'blocks.0.attn.rel_pos_encoding.table_k': torch.ones(2)}, 'deit')
    with pytest.raises(ValueError, match='these are weights of none of the models of timm'):
        convert_back({'stages.0.blocks.0.norm1.weight': torch.ones(2)}, 'deit')
    with pytest.raises(ValueError, match="source='pvt' must be one of .*'deit'.*, to go back to"):
        convert_back(table, 'pvt')
    back = convert_back({**{f'backbone.{k}': v for k, v in table.items()},
                         'head.fc.bias': torch.ones(3), 'neck.bias': torch.ones(1)})
    assert set(back.state_dict) == {'pos_embed', 'head.bias'}
    assert 'no place' in back.dropped['neck.bias']


@pytest.mark.parametrize('source, said', [
    ('pvt', "source='pvt' has no rule for 2 of 3 parameters: block9.q, what.is.this"),
    ('pvt2', "source='pvt2' must be one of 'pvt', 'twins'")])
def test_unknown_parameters_and_sources_are_named(source, said) -> None:
    state = dict.fromkeys(('norm.weight', 'block9.q', 'what.is.this'), torch.zeros(1))
    with pytest.raises(ValueError, match=said):
        convert(state, source)


def test_dropped_parameters_come_with_a_reason_and_no_two_get_one_name() -> None:
    rules = (Rule(r'old\..*', None, 'not used since 1.0'), Rule(r'[ab]\.(\d)', r'c.\1'))
    state = {'old.x': torch.zeros(1), 'a.3': torch.ones(1)}
    converted = apply_rules(state, rules, 'test')
    assert converted.dropped == {'old.x': 'not used since 1.0'}
    assert list(converted.state_dict) == ['c.3']
    with pytest.raises(ValueError, match='b.3 becomes c.3, which another'):
        apply_rules({**state, 'b.3': torch.zeros(1)}, rules, 'test')
