"""One relative encoding for several blocks: computed as with copies, stored and trained as one."""
from functools import partial

import examples
import pytest
import torch
from helpers.tiny_backbones import BUILD as BUILD_TINY
from helpers.tiny_backbones import randomize, without_grids

from mmposenc.backbones import DeiT
from mmposenc.encodings import IRPE, relative_tables

SIZE = (32, 48)
IRPE_KV = dict(type='IRPE', rpe_on='kv')
BIAS = dict(type='RelativePositionBias')
#: Backbones whose stages have the same heads. Grids differ in PVT, channels of the heads in Swin.
BUILD = {
    'deit': partial(DeiT, embed_dims=16, num_layers=3, num_heads=2, patch_size=8, img_size=SIZE),
    'pvt': partial(BUILD_TINY['pvt'], embed_dims=(16, 16), num_layers=(2, 2), num_heads=(2, 2),
                   img_size=SIZE, drop_path_rate=0.0),
    'swin': partial(BUILD_TINY['swin'], embed_dims=8, num_layers=(2, 2), img_size=SIZE,
                    drop_path_rate=0.0, rel_pos_encoding=None, mlp_ratio=2)}
ENCODINGS = {'deit': IRPE_KV, 'pvt': IRPE_KV, 'swin': BIAS}


def build(backbone, sharing, **options):
    """With an encoding that all its stages can share."""
    return BUILD[backbone](rel_pos_encoding=ENCODINGS[backbone], rel_pos_sharing=sharing, **options)


def attentions(model):
    return [module for module in model.modules()
            if getattr(module, 'rel_pos_encoding', None) is not None and hasattr(module, 'proj')]


def owners(model):
    """Names of the encodings in the tree of modules, a part of a sum not counted."""
    return [name for name, _ in model.named_modules() if name.endswith('rel_pos_encoding')]


def outputs(model, x):
    return torch.cat([out.flatten(1) for out in model(x)], 1)


@pytest.mark.parametrize('backbone, sharing, name', [
    *(('deit', 'all', name) for name in examples.RELATIVE), ('pvt', 'stage', 'IRPE cross qkv'),
    ('pvt', 'all', 'SASARPE'), ('swin', 'stage', 'IRPE product qkv'),
    ('swin', 'all', 'LogSpacedCPB')])
def test_values_and_gradients_are_those_of_copies(backbone, sharing, name):
    """The gradient of what is shared is the sum over the blocks that use it."""
    cfg = examples.small(name)
    shared = randomize(BUILD[backbone](rel_pos_encoding=cfg, rel_pos_sharing=sharing)).double()
    copies = BUILD[backbone](rel_pos_encoding=cfg).double()
    copies.load_state_dict({key: value for key, value in shared.state_dict().items()
                            if 'rel_pos_encoding' not in key}, strict=False)
    users = {}
    for mine, theirs in zip(attentions(shared), attentions(copies), strict=True):
        theirs.rel_pos_encoding.load_state_dict(mine.rel_pos_encoding.state_dict())
        users.setdefault(mine.rel_pos_encoding, []).append(theirs.rel_pos_encoding)
    x = torch.randn(2, 3, *SIZE, dtype=torch.float64)
    outs = [outputs(model, x) for model in (shared, copies)]
    torch.testing.assert_close(*outs, rtol=1e-12, atol=1e-12)
    for out in outs:
        out.square().sum().backward()
    for encoding, parts in users.items():
        assert len(parts) == (len(attentions(shared)) if sharing == 'all' else 2)
        for key, parameter in encoding.named_parameters():
            grads = [part.get_parameter(key).grad for part in parts]
            if any(grad is not None for grad in grads):  # None: QueryAbsolute1D's unused part
                torch.testing.assert_close(parameter.grad, sum(grads), rtol=1e-10, atol=1e-10)
    for key, parameter in shared.named_parameters():
        if 'rel_pos_encoding' not in key:
            torch.testing.assert_close(parameter.grad, copies.get_parameter(key).grad, rtol=1e-10,
                                       atol=1e-10, msg=key)


@pytest.mark.parametrize('sharing', ['stage', 'all'])
@pytest.mark.parametrize('backbone', BUILD)
def test_what_is_shared_is_listed_and_saved_once(backbone, sharing):
    model, names = build(backbone, sharing), ['rel_pos_encoding']
    if sharing == 'stage' and backbone != 'deit':
        names = ['stages.0.rel_pos_encoding', 'stages.1.rel_pos_encoding']
    assert owners(model) == names
    tables = {f'{name}.{table}' for name in names for table in (
        ('relative_position_bias_table',) if backbone == 'swin' else ('table_k', 'table_v'))}
    assert {key for key in without_grids(model.state_dict()) if 'rel_pos' in key} == tables
    assert {key for key, _ in model.named_parameters(remove_duplicate=False)
            if 'rel_pos' in key} == tables
    assert set(relative_tables(model)) == tables


@pytest.mark.parametrize('backbone, sharing, options, trained', [
    *(('deit', 'all', dict(frozen_stages=frozen), [frozen < 3]) for frozen in range(-1, 4)),
    *((name, 'all', dict(frozen_stages=frozen), [frozen < 2])
      for name in ('pvt', 'swin') for frozen in range(-1, 3)),
    *((name, 'stage', dict(frozen_stages=1), [False, True]) for name in ('pvt', 'swin')),
    # Blocks that are never run do not count.
    ('deit', 'all', dict(out_indices=(1,), frozen_stages=1), [True]),
    ('deit', 'all', dict(out_indices=(1,), frozen_stages=2), [False]),
    ('swin', 'all', dict(out_indices=(0,), frozen_stages=0), [True]),
    ('swin', 'all', dict(out_indices=(0,), frozen_stages=1), [False])], ids=str)
def test_what_frozen_blocks_share_with_others_is_trained(backbone, sharing, options, trained):
    model = randomize(build(backbone, sharing, **options)).train()
    shared = [model.get_submodule(name) for name in owners(model)]
    assert [[p.requires_grad for p in each.parameters()] for each in shared] == [
        [wanted] * len(list(each.parameters())) for wanted, each in zip(
            trained, shared, strict=True)]
    out = outputs(model, torch.randn(1, 3, *SIZE))
    if any(trained):
        out.square().sum().backward()
        assert all(p.grad.any() for p in relative_tables(model).values() if p.requires_grad)


@pytest.mark.parametrize('backbone', ['deit', 'pvt'])
def test_a_module_is_for_all_attentions(backbone):
    module = IRPE(8, 2, num_prefix_tokens=int(backbone == 'deit'))
    with pytest.raises(ValueError, match="is a module and rel_pos_sharing='layer'.*config dict"):
        BUILD[backbone](rel_pos_encoding=module)
    model = BUILD[backbone](rel_pos_encoding=module, rel_pos_sharing='all')
    assert all(each.rel_pos_encoding is module for each in attentions(model))


def test_tables_of_an_offset_are_made_for_the_grid_that_the_backbone_knows():
    model = BUILD['pvt'](rel_pos_encoding=BIAS)
    assert [each.rel_pos_encoding.sides for each in attentions(model)] == [
        (8, 12), (8, 12), (4, 6), (4, 6)]
    sizes = [dict(type='QueryAbsolute1D'), dict(type='QueryRelative2D'), dict(type='LogSpacedCPB'),
             dict(BIAS, window_size=(9, 9))]
    absolute, relative, cpb, bias = attentions(BUILD['deit'](rel_pos_encoding=sizes))[
        0].rel_pos_encoding.encodings
    assert absolute.max_tokens == 1 + 24 and relative.max_size == (4, 6)
    assert cpb.window_size is None and bias.sides == (9, 9)
