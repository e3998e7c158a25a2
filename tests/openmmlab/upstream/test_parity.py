"""With only the type changed a training has the library's rates, weight decay, initial weights and
stochastic depth, compared parameter by parameter with its own classes."""
import copy

import pytest
import torch
from helpers.tiny_backbones import randomize
from helpers.upstream_configs import SMALL, build, cut, paramwise_kinds, theirs, upstream
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DefaultScope
from torch import nn
from torch.utils._pytree import tree_leaves

from mmposenc.backbones import load_pretrained
from mmposenc.signatures import parameters_of

MADE_UP = (
    dict(norm_decay_mult=0.0, bias_decay_mult=0.3, bias_lr_mult=2.0, dwconv_decay_mult=0.7,
         flat_decay_mult=0.5, bypass_duplicate=True),
    dict(bias_decay_mult=0.0, custom_keys={
        'norm': dict(decay_mult=0.0), 'backbone': dict(lr_mult=0.1), 'pos_block': dict(lr_mult=3),
        'backbone.patch_embed': dict(lr_mult=0.2), 'backbone.stages.0': dict(lr_mult=0.3),
        'backbone.layers.0.1': dict(lr_mult=0.4, decay_mult=2.0), 'attn.': dict(lr_mult=0.6)}),
    dict(norm_decay_mult=0.1, custom_keys={
        'ln1': dict(decay_mult=0.0), 'pos_embed': dict(decay_mult=0.0), 'cpb_mlp': dict(lr_mult=5),
        'relative_position_bias_table': dict(decay_mult=0.0, lr_mult=0.5), 'ffn': dict(lr_mult=2),
        'absolute_pos_embed': dict(decay_mult=0.0), 'position_encodings': dict(decay_mult=0.9),
        'in_proj': dict(lr_mult=7), 'norm1': dict(decay_mult=4.0), '.bias': dict(decay_mult=0.2)}))
LAYER_WISE = {
    'mmseg': ('LearningRateDecayOptimizerConstructor', dict(
        decay_rate=0.5, decay_type='layer_wise_vit', num_layers=2)),
    'mmpretrain': ('LearningRateDecayOptimWrapperConstructor', dict(
        MADE_UP[2], layer_decay_rate=0.5, flat_decay_mult=0.0))}


class Model(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(2, 3)

    def get_layer_depth(self, name, prefix=''):
        return self.backbone.get_layer_depth(name, 'backbone.')


def settings(library, model, **optim):
    """Rate and weight decay of each trained parameter, with nothing but mmengine's function."""
    with DefaultScope.overwrite_default_scope(library):
        optimizer = build_optim_wrapper(model, dict(copy.deepcopy(optim), optimizer=dict(
            type='AdamW', lr=1e-2, weight_decay=0.1))).optimizer
    by_id = {id(each): (group['lr'], group['weight_decay'])
             for group in optimizer.param_groups for each in group['params']}
    return {name: by_id.get(id(each)) for name, each in model.named_parameters()}


def check_groups(library, name, options=None, **optim):
    ours, other = (Model(make(library, name, **options or {})) for make in (build, theirs))
    expected, found = settings(library, other, **optim), settings(library, ours, **optim)
    for number, each in enumerate(other.backbone.parameters()):
        nn.init.constant_(each, number)
    frozen = [each.requires_grad for each in ours.parameters()]
    load_pretrained(ours.backbone, other.backbone.state_dict())
    counterparts = [f'backbone.{each}' for each, _ in other.backbone.named_parameters()]
    for (each, parameter), trained in zip(ours.named_parameters(), frozen, strict=True):
        counterpart = counterparts[int(parameter.flatten()[0])] if 'head' not in each else each
        assert not trained or found[each] == expected[counterpart], (each, counterpart)
    return found


@pytest.mark.parametrize('library, name', SMALL)
def test_groups_are_those_of_the_librarys_parameters(library, name):
    for paramwise in MADE_UP:
        assert len(set(check_groups(library, name, paramwise_cfg=paramwise).values())) > 2
    constructor, paramwise = LAYER_WISE.get(library, ('', None))
    if constructor and (name in ('BEiT', 'MAE') or hasattr(upstream(library, name),
                                                           'get_layer_depth')):
        check_groups(library, name, constructor=constructor, paramwise_cfg=paramwise)


@pytest.mark.slow
@pytest.mark.parametrize('library', ['mmdet', 'mmseg', 'mmpretrain'])
def test_groups_of_every_config(library, monkeypatch):
    kinds = paramwise_kinds(library)
    assert len(kinds) > 5
    for name, options, optim in kinds:
        kind = upstream(library, name)
        short = cut(kind, {key: value for key, value in options.items()
                           if key in parameters_of(kind)}, narrower=8)
        if 'num_layers' in (optim.get('paramwise_cfg') or {}):
            optim['paramwise_cfg']['num_layers'] = 2
        monkeypatch.setitem(SMALL, (library, name), short)
        check_groups(library, name, **optim)


def test_what_the_library_does_not_have_follows_its_block_and_our_names():
    constructor, paramwise = LAYER_WISE['mmseg']
    model = Model(build('mmseg', 'BEiT', rel_pos_encoding=[
        dict(type='mmposenc.RelativePositionBias'), dict(type='mmposenc.IRPE')]))
    found = settings('mmseg', model, constructor=constructor, paramwise_cfg=paramwise)
    block = 'backbone.blocks.0.attn'
    new = {value for name, value in found.items() if name.startswith(
        f'{block}.rel_pos_encoding.encodings.1.')}
    assert new == {(found[f'{block}.qkv.weight'][0], 0.0)} == {(2.5e-3, 0.0)}
    keys = {'rel_pos_encoding': dict(lr_mult=0.5), 'blocks.0': dict(lr_mult=9.0)}
    found = settings('mmseg', model, paramwise_cfg=dict(custom_keys=keys))
    assert {rate for name, (rate, _) in found.items() if 'rel_pos_encoding.' in name} == {5e-3}
    assert found[f'{block}.qkv.weight'] == (1e-2, 0.1)


@pytest.mark.parametrize('library, name', SMALL)
def test_initial_weights_are_the_librarys(library, name):
    """To the bit, with the same random numbers; those of encodings that are given stay ours."""
    ours, loaded = (build(library, name) for _ in range(2))
    torch.manual_seed(0)
    other = theirs(library, name)
    other.init_weights()
    load_pretrained(loaded, other.state_dict())
    torch.manual_seed(0)
    ours.init_weights()
    for (each, got), wanted in zip(ours.named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(got, wanted), each
    given = build(library, name, pos_encoding=dict(type='mmposenc.PEG', zero_init=True))
    given.init_weights()
    assert not any(each.any() for key, each in given.named_parameters() if 'pos_encodings' in key)


@pytest.mark.parametrize('library, name', SMALL)
def test_what_is_dropped_leaves_the_same(library, name):
    """With all branches dropped that stochastic depth may drop, and ``attn_drop_rate`` of BEiT."""
    extra = dict(attn_drop_rate=0.5) if name in ('BEiT', 'MAE') else {}
    ours, other = (make(library, name, drop_path_rate=0.5, **extra) for make in (build, theirs))
    load_pretrained(ours, randomize(other).state_dict())
    outs, side = [], 80 if 'Swin' in name else 40
    for model in (ours.double(), other.double()):
        model.train()
        for layer in model.modules():
            if getattr(layer, 'drop_prob', 0) > 0:
                layer.drop_prob = 1 - 1e-12
        torch.manual_seed(0)  # MAE draws patches
        outs.append(tree_leaves(model(torch.ones(1, 3, side, side, dtype=torch.float64))))
    torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)
