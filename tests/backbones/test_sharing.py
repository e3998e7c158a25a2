"""One relative encoding for several blocks: computed as with copies, stored and trained as one."""
import copy

import examples
import pytest
import torch
from helpers.tiny_backbones import randomize
from mmengine.model import ExponentialMovingAverage
from torch import nn

from mmposenc.attention import MultiheadAttention
from mmposenc.backbones import PVT, DeiT, Swin
from mmposenc.backbones.checkpoints import load_pretrained
from mmposenc.encodings import IRPE, position_tables

SIZE = (32, 48)
IRPE_KV = dict(type='IRPE', rpe_on='kv')
BIAS = dict(type='RelativePositionBias')
#: Backbones whose stages have the same heads. Grids differ in PVT, channels of the heads in Swin.
BUILD = {
    'deit': lambda **o: DeiT(**{**dict(embed_dims=16, num_layers=3, num_heads=2, patch_size=8,
                                       img_size=SIZE), **o}),
    'pvt': lambda **o: PVT(**{**dict(
        embed_dims=(16, 16), num_layers=(2, 2), num_heads=(2, 2), sr_ratios=(4, 2),
        mlp_ratios=(2, 2), patch_sizes=(4, 2), out_indices=(0, 1), img_size=SIZE,
        drop_path_rate=0.0), **o}),
    'swin': lambda **o: Swin(**{**dict(
        embed_dims=8, num_layers=(2, 2), num_heads=(2, 2), window_size=4, img_size=SIZE,
        drop_path_rate=0.0, rel_pos_encoding=None, mlp_ratio=2), **o})}
ENCODINGS = {'deit': IRPE_KV, 'pvt': IRPE_KV, 'swin': BIAS}
SHARED = [(name, sharing) for name in BUILD for sharing in ('stage', 'all')]


def build(backbone, sharing, **options):
    """With an encoding that all its stages can share."""
    return BUILD[backbone](rel_pos_encoding=ENCODINGS[backbone], rel_pos_sharing=sharing, **options)


def attentions(model):
    return [module for module in model.modules()
            if getattr(module, 'rel_pos_encoding', None) is not None and hasattr(module, 'proj')]


def owners(model):
    """Names of the encodings in the tree of modules, a part of a sum not counted."""
    return [name for name, _ in model.named_modules() if name.endswith('rel_pos_encoding')]


def with_copies(name, shared, **options):
    """The same model with an encoding in every attention, all with the shared one's weights."""
    model = BUILD[name](**options)
    own = {key: value for key, value in shared.state_dict().items()
           if 'rel_pos_encoding' not in key}
    model.load_state_dict(own, strict=False)
    for mine, theirs in zip(attentions(model), attentions(shared), strict=True):
        mine.rel_pos_encoding.load_state_dict(theirs.rel_pos_encoding.state_dict())
    return model.double()


def outputs(model, x):
    return torch.cat([out.flatten(1) for out in model(x)], 1)


def check_against_copies(name, sharing, encoding, **options):
    shared = randomize(BUILD[name](rel_pos_encoding=encoding, rel_pos_sharing=sharing, **options))
    copies = with_copies(name, shared, rel_pos_encoding=encoding, **options)
    shared.double()
    x = torch.randn(2, 3, *SIZE, dtype=torch.float64)
    out, expected = outputs(shared, x), outputs(copies, x)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    out.square().sum().backward()
    expected.square().sum().backward()
    groups = {}
    for mine, theirs in zip(attentions(shared), attentions(copies), strict=True):
        groups.setdefault(mine.rel_pos_encoding, []).append(theirs.rel_pos_encoding)
    for encoding, parts in groups.items():
        for key, parameter in encoding.named_parameters():
            grads = [part.get_parameter(key).grad for part in parts]
            if any(grad is not None for grad in grads):  # None: QueryAbsolute1D's unused part
                torch.testing.assert_close(parameter.grad, sum(grads), rtol=1e-10, atol=1e-10)
    for (key, parameter), other in zip(
            ((k, p) for k, p in shared.named_parameters() if 'rel_pos_encoding' not in k),
            (p for k, p in copies.named_parameters() if 'rel_pos_encoding' not in k), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-10, atol=1e-10, msg=key)
    return groups


@pytest.mark.parametrize('name', examples.RELATIVE)
def test_values_and_gradients_are_those_of_copies(name):
    """The gradient of what is shared is the sum over the blocks that use it."""
    groups = check_against_copies('deit', 'all', examples.small(name))
    assert [len(parts) for parts in groups.values()] == [3]


@pytest.mark.parametrize('backbone, sharing, name', [
    *(pytest.param('pvt', 'stage', name, marks=() if name == 'IRPE cross qkv' else pytest.mark.slow)
      for name in examples.RELATIVE),
    *(('swin', 'stage', name) for name in ('IRPE product qkv', 'SASARPE', 'CombinedRPE of masks')),
    *(('pvt', 'all', name) for name in ('IRPE product qkv', 'SASARPE', 'RotaryEmbedding mixed')),
    *(('swin', 'all', name) for name in ('RelativePositionBias', 'LogSpacedCPB'))])
def test_values_and_gradients_in_stages(backbone, sharing, name):
    groups = check_against_copies(backbone, sharing, examples.small(name))
    assert [len(parts) for parts in groups.values()] == ([2, 2] if sharing == 'stage' else [4])


@pytest.mark.parametrize('backbone, sharing, names', [
    ('deit', 'stage', ['rel_pos_encoding']), ('deit', 'all', ['rel_pos_encoding']),
    ('pvt', 'stage', ['stages.0.rel_pos_encoding', 'stages.1.rel_pos_encoding']),
    ('pvt', 'all', ['rel_pos_encoding']),
    ('swin', 'stage', ['stages.0.rel_pos_encoding', 'stages.1.rel_pos_encoding']),
    ('swin', 'all', ['rel_pos_encoding'])])
def test_what_is_shared_is_listed_and_saved_once(backbone, sharing, names):
    model = build(backbone, sharing)
    assert owners(model) == names
    tables = {f'{name}.{table}' for name in names for table in (
        ('relative_position_bias_table',) if backbone == 'swin' else ('table_k', 'table_v'))}
    assert {key for key in model.state_dict() if 'rel_pos' in key} == tables
    assert {key for key, _ in model.named_parameters(remove_duplicate=False)
            if 'rel_pos' in key} == tables
    assert set(position_tables(model)) == tables


@pytest.mark.parametrize('backbone, sharing', SHARED)
def test_copies_of_the_model_share_their_own(backbone, sharing):
    model = randomize(build(backbone, sharing)).eval()
    average = ExponentialMovingAverage(model, momentum=0.5).module
    for other in (copy.deepcopy(model), average):
        assert owners(other) == owners(model)
        held = {id(p) for p in other.parameters()}
        for attention in attentions(other):
            assert {id(p) for p in attention.rel_pos_encoding.parameters()} <= held
    x = torch.randn(1, 3, *SIZE)
    before = outputs(model, x)
    for table in position_tables(average).values():
        nn.init.zeros_(table)
    torch.testing.assert_close(outputs(model, x), before, rtol=0, atol=0)
    assert not torch.allclose(outputs(average, x), before)


def trained(model):
    return all(table.requires_grad for table in position_tables(model).values())


@pytest.mark.parametrize('backbone, count', [('deit', 3), ('pvt', 2), ('swin', 2)])
def test_frozen_blocks_leave_what_they_share_with_others_trained(backbone, count):
    for frozen in range(-1, count):
        model = randomize(build(backbone, 'all', frozen_stages=frozen)).train()
        assert trained(model)
        outputs(model, torch.randn(1, 3, *SIZE)).square().sum().backward()
        assert all(table.grad.any() for table in position_tables(model).values())
    model = build(backbone, 'all', frozen_stages=count).train()
    assert not any(table.requires_grad for table in position_tables(model).values())


@pytest.mark.parametrize('backbone', ['pvt', 'swin'])
def test_frozen_stages_freeze_what_is_theirs_alone(backbone):
    model = build(backbone, 'stage', frozen_stages=1)
    assert not any(p.requires_grad for p in model.stages[0].rel_pos_encoding.parameters())
    assert trained(model.stages[1])


def test_blocks_that_are_never_run_do_not_count():
    for frozen, wanted in ((1, True), (2, False)):
        assert trained(build('deit', 'all', out_indices=(1,), frozen_stages=frozen)) == wanted
        assert trained(build('swin', 'all', out_indices=(0,), frozen_stages=frozen - 1)) == wanted


def test_a_checkpoint_loads_and_its_biases_fit_another_window():
    options = dict(rel_pos_encoding=BIAS, rel_pos_sharing='all', pool='gap')
    small = randomize(BUILD['deit'](**options, img_size=32))
    again, larger = BUILD['deit'](**options, img_size=32), BUILD['deit'](**options, img_size=64)
    load_pretrained(again, small.state_dict())
    x = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(outputs(again, x), outputs(small, x), rtol=0, atol=0)
    load_pretrained(larger, {f'backbone.{k}': v for k, v in small.state_dict().items()})
    table = larger.rel_pos_encoding.relative_position_bias_table
    assert table.shape == (15 * 15, 2)
    torch.testing.assert_close(table[15 * 7 + 7], small.rel_pos_encoding
                               .relative_position_bias_table[7 * 3 + 3])  # no offset: the middle
    options['rel_pos_sharing'] = 'layer'
    with pytest.raises(ValueError, match=r'missing: rel_pos_encoding\.rel.*\n.*unexpected: bl'):
        load_pretrained(small, BUILD['deit'](**options, img_size=32).state_dict())


def test_stages_of_several_sizes_cannot_share():
    for backbone, options, message in (
            (PVT, dict(arch='tiny', rel_pos_encoding=IRPE_KV), 'num_heads 1, 2, 5, 8'),
            (Swin, dict(arch='tiny'), 'num_heads 3, 6, 12, 24'),
            (BUILD['swin'], dict(rel_pos_encoding=IRPE_KV, num_heads=(2, 4), embed_dims=16,
                                 num_layers=(1, 1)), 'num_heads 2, 4'),
            (BUILD['swin'], dict(rel_pos_encoding=IRPE_KV), 'head_dims 4, 8'),
            (BUILD['pvt'], dict(rel_pos_encoding=IRPE_KV, embed_dims=(16, 32)), 'head_dims 8, 16'),
            (BUILD['pvt'], dict(rel_pos_encoding=IRPE_KV, pool='cls', sr_ratios=(4, 1)),
             'num_prefix_tokens 0, 1'),
            (BUILD['pvt'], dict(rel_pos_encoding=BIAS), r'window_size \(8, 12\), \(4, 6\)')):
        with torch.device('meta'), pytest.raises(
                ValueError, match=f"rel_pos_sharing='all' needs one size in .*{message}"):
            backbone(**options, rel_pos_sharing='all')


@pytest.mark.parametrize('backbone', BUILD)
def test_wrong_options(backbone):
    module = IRPE(8, 2, num_prefix_tokens=int(backbone == 'deit'))
    if backbone == 'swin':
        return
    with pytest.raises(ValueError, match="is a module and rel_pos_sharing='layer'.*config dict"):
        BUILD[backbone](rel_pos_encoding=module)
    model = BUILD[backbone](rel_pos_encoding=module, rel_pos_sharing='all')
    assert all(each.rel_pos_encoding is module for each in attentions(model))


@pytest.mark.parametrize('backbone', BUILD)
def test_nothing_to_share_is_no_error(backbone):
    assert not owners(BUILD[backbone](rel_pos_sharing='all'))


def test_tables_of_an_offset_are_made_for_the_grid_that_the_backbone_knows():
    model = BUILD['pvt'](rel_pos_encoding=BIAS)
    assert [each.rel_pos_encoding.window_size for each in attentions(model)] == [
        (8, 12), (8, 12), (4, 6), (4, 6)]
    sizes = [dict(type='QueryAbsolute1D'), dict(type='QueryRelative2D'), dict(type='LogSpacedCPB')]
    model = BUILD['deit'](rel_pos_encoding=dict(type='CombinedRPE', encodings=sizes))
    absolute, relative, cpb = attentions(model)[0].rel_pos_encoding.encodings
    assert absolute.max_tokens == 1 + 24 and relative.max_size == (4, 6)
    assert cpb.window_size is None
    model = BUILD['deit'](rel_pos_encoding=dict(BIAS, window_size=(9, 9)))
    assert attentions(model)[0].rel_pos_encoding.window_size == (9, 9)
    with pytest.raises(ValueError, match=r"has no window_size; RelativePositionBias requires it"):
        MultiheadAttention(16, 2, rel_pos_encoding=BIAS)
