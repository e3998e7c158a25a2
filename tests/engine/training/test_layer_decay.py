"""Layer-wise learning rates, in models of all three packages."""
import re

import examples
import pytest
import torch
from helpers import tiny_backbones, tiny_run
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DefaultScope
from mmpretrain.registry import MODELS
from torch import nn

from mmposenc.backbones import DeiT
from mmposenc.encodings import relative_tables
from mmposenc.engine.training.layer_decay import (
    LayerDecayOptimWrapperConstructor,
    layer_scales,
    with_our_constructor,
)

OURS = 'mmposenc.LayerDecayOptimWrapperConstructor'
PLAIN = dict(embed_dims=24, num_layers=3, num_heads=2)
BUILD = {**tiny_backbones.BUILD, 'deit': lambda **o: DeiT(patch_size=8, **PLAIN, **o)}
#: Blocks of each stage.
DEPTHS = {'deit': (3,), 'pvt': (1, 2), 'swin': (1, 2)}


def power(name: str, depths: tuple[int, ...]) -> int:
    """Of the rate: how many blocks there are from a parameter's to the head."""
    if re.match(r'head|backbone\.norm', name):
        return 0
    stage = re.search(r'stages\.(\d)', name)
    before = sum(depths[:int(stage[1])]) if stage else 0
    block = re.search(r'(?:\.blocks\.|\.after)(\d)', name)
    if block:
        before += int(block[1]) + 1
    elif 'rel_pos_encoding' in name:  # of a stage, or of all: as its first block
        before += 1
    elif 'downsample' in name:  # as the stage's last block
        before += depths[int(stage[1])]
    return sum(depths) + 1 - before


def model_of(backbone: nn.Module) -> nn.Module:
    return nn.ModuleDict(dict(backbone=backbone, head=nn.Linear(3, 2)))


def groups(model: nn.Module, constructor: str, **paramwise) -> dict[str, tuple[float, float]]:
    """Learning rate and weight decay of every parameter that is trained."""
    wrapper = build_optim_wrapper(model, dict(
        optimizer=dict(type='AdamW', lr=1e-2, weight_decay=0.1), constructor=constructor,
        paramwise_cfg=paramwise))
    by_id = {id(p): (group['lr'], group['weight_decay'])
             for group in wrapper.optimizer.param_groups for p in group['params']}
    return {name: by_id[id(p)] for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize('name, sharing', [
    *((name, sharing) for name in DEPTHS for sharing in ('layer', 'stage')), ('swin', 'all')])
def test_every_part_has_the_rate_of_its_depth(name, sharing):
    """With token encodings before the blocks and after every one, and relative ones."""
    encodings, positions = [dict(type='PEG'), dict(type='ContextPool')], 'every'
    if sharing == 'layer':
        encodings, positions = [dict(type='LearnedPositionEmbedding')], (-1,)
    model = model_of(BUILD[name](
        pos_encoding=encodings, positions=positions, rel_pos_sharing=sharing,
        rel_pos_encoding=dict(type='RelativePositionBias')))
    scales = layer_scales(model, 0.5)
    assert scales.keys() == dict(model.named_parameters()).keys()
    for parameter, scale in scales.items():
        assert scale == 0.5 ** power(parameter, DEPTHS[name]), parameter


@pytest.mark.parametrize('cfg', [*examples.RELATIVE.values(), *examples.TOKEN.values()], ids=str)
def test_no_encoding_has_weight_decay_or_a_rate_of_no_layer(cfg):
    """Tables of all encodings; what is a network of its own decays as networks do."""
    relative = cfg in examples.RELATIVE.values()
    model = model_of(DeiT(embed_dims=32, num_layers=2, num_heads=2, patch_size=8, img_size=32,
                          **{'rel_pos_encoding' if relative else 'pos_encoding': cfg}))
    found = groups(model, OURS, layer_decay_rate=0.5)
    for name, (rate, decay) in found.items():
        assert rate in (1e-2, 5e-3, 2.5e-3, 1.25e-3)
        if 'rel_pos_encoding' in name or 'pos_encodings' in name:
            assert rate != 1e-2
        if name in relative_tables(model) or name.endswith(('pos_embed', 'cls_token', 'bias')):
            assert decay == 0
    assert found['backbone.blocks.0.attn.qkv.weight'] == (2.5e-3, 0.1)
    assert found['backbone.blocks.1.norm1.weight'] == (5e-3, 0.0)
    assert found['head.weight'] == (1e-2, 0.1)


def test_swin_v2():
    """As in its release, neither scales of cosines nor the network of the biases decays."""
    model = model_of(BUILD['swin'](arch='v2-tiny'))
    found = groups(model, OURS, layer_decay_rate=0.5)
    free = [name for name, (_, decay) in found.items() if decay == 0]
    for part in ('cosine.logit_scale', 'rel_pos_encoding.cpb_mlp.0.weight', 'qkv.bias'):
        assert f'backbone.stages.1.blocks.0.attn.w_msa.{part}' in free
        assert found[f'backbone.stages.1.blocks.0.attn.w_msa.{part}'][0] == 2.5e-3
    assert found['backbone.stages.1.blocks.1.attn.w_msa.qkv.weight'] == (5e-3, 0.1)


def test_low_rank_matrices_have_the_rates_of_their_blocks():
    backbone = MODELS.build(dict(type='LoRAModel', rank=2, targets=[dict(type='qkv')], module=dict(
        type='mmposenc.DeiT', embed_dims=24, num_layers=3, num_heads=2)))
    scales = {name: scale for name, scale in layer_scales(model_of(backbone), 0.5).items()
              if '.lora_' in name}
    assert len(scales) == 6
    assert all(scale == 0.5 ** power(name, (3,)) for name, scale in scales.items())


BEIT = dict(arch=dict(PLAIN, feedforward_channels=48), out_indices=(2,))


@pytest.mark.parametrize('backbone, channels', [
    (dict(type='mmpretrain.VisionTransformer', **BEIT), 24),
    (dict(type='mmpretrain.SwinTransformer', out_indices=(1,),
          arch=dict(embed_dims=8, depths=[1, 2], num_heads=[1, 2])), 16),
    (dict(type='mmposenc.DeiT', **PLAIN,
          pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')), 24)])
def test_equal_to_mmpretrain(backbone, channels):
    """Group by group, on its own backbones and on ours."""
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(dict(
            type='mmpretrain.ImageClassifier', backbone=backbone,
            head=dict(type='mmpretrain.LinearClsHead', num_classes=4, in_channels=channels)))
    options = dict(layer_decay_rate=0.65, norm_decay_mult=0.0, bias_decay_mult=0.0,
                   flat_decay_mult=0.0, custom_keys={
                       '.cls_token': dict(decay_mult=0.0), '.pos_embed': dict(decay_mult=0.0),
                       'relative_position_bias_table': dict(decay_mult=0.0)})
    expected = groups(model, 'mmpretrain.LearningRateDecayOptimWrapperConstructor', **options)
    found = groups(model, OURS, **options)
    assert found.keys() == expected.keys() and len({rate for rate, _ in found.values()}) == 5
    for name, (rate, decay) in found.items():
        assert rate == pytest.approx(expected[name][0], rel=1e-12), name
        assert decay == expected[name][1], name


def test_what_the_user_says_stands_above_the_rule():
    model = model_of(BUILD['deit'](pos_encoding=dict(type='LearnedPositionEmbedding')))
    found = groups(model, OURS, layer_decay_rate=0.5, norm_decay_mult=1.0, custom_keys={
        'pos_embed': dict(decay_mult=0.5, lr_mult=10.0)})
    assert found['backbone.pos_encodings.at.before.0.pos_embed'] == (1e-2 * 10 / 16, 0.05)
    assert found['backbone.blocks.0.norm1.weight'] == (1e-2 / 8, 0.1)
    assert found['backbone.cls_token'] == (1e-2 / 16, 0.0)


@pytest.mark.parametrize('paramwise, message', [
    (dict(), 'layer_decay_rate=None must be'), (dict(layer_decay_rate=1.5), '=1.5 must be'),
    (dict(layer_decay_rate='0.7'), "='0.7' must be"),
    (dict(layer_decay_rate=0.7, num_layers=12), 'num_layers=12: backbone has 3 blocks')])
def test_wrong_options_and_a_model_without_such_a_backbone(paramwise, message):
    with pytest.raises(ValueError, match=message):
        groups(model_of(BUILD['deit']()), OURS, **paramwise)
    with pytest.raises(ValueError, match='ModuleDict has no backbone with get_layer_depth'):
        groups(model_of(nn.Linear(2, 2)), OURS, layer_decay_rate=0.7)


@pytest.mark.parametrize('constructor, rules', [
    ('mmposenc.OptimWrapperConstructor',
     dict(norm_decay_mult=0., bias_decay_mult=0.5, flat_decay_mult=0.25)),
    (OURS, dict(layer_decay_rate=0.7))])
@pytest.mark.parametrize('key', ['backbone', 'blocks.1', 'head'])
def test_a_key_with_a_rate_alone_leaves_weight_decay(constructor, rules, key) -> None:
    model = model_of(BUILD['deit'](pos_encoding=dict(type='LearnedPositionEmbedding')))
    plain = groups(model, constructor, **rules)
    found = groups(model, constructor, **rules, custom_keys={key: dict(lr_mult=0.5)})
    assert {decay for _, decay in plain.values()} >= {0.0, 0.1}
    for name, (rate, decay) in plain.items():
        assert found[name] == (pytest.approx(rate * (0.5 if key in name else 1)), decay), name
    both = groups(model, constructor, **rules,
                  custom_keys={key: dict(lr_mult=0.5), 'qkv': dict(decay_mult=3.0)})
    assert all(decay == pytest.approx(0.3) for name, (_, decay) in both.items() if 'qkv' in name)


def test_without_such_keys_groups_are_mmengines() -> None:
    model = model_of(BUILD['pvt']())
    rules = dict(norm_decay_mult=0., custom_keys={'backbone': dict(lr_mult=0.1, decay_mult=0.5)})
    assert groups(model, 'mmposenc.OptimWrapperConstructor', **rules) == \
        groups(model, 'DefaultOptimWrapperConstructor', **rules)


def test_the_rate_is_scaled_by_all_images_of_a_step(tmp_path) -> None:
    loader = torch.utils.data.DataLoader(tiny_run.Data(8), batch_size=2)
    for counts, expected in ((1, 0.025), (4, 0.1)):
        run = tiny_run.runner(tmp_path / str(counts), train_dataloader=loader, optim_wrapper=dict(
            optimizer=dict(type='SGD', lr=0.1), accumulative_counts=counts),
            auto_scale_lr=dict(enable=True, base_batch_size=8))
        run.train()
        assert run.optim_wrapper.param_groups[0]['lr'] == pytest.approx(expected)


def test_stage_wise_rates_are_refused():
    model = nn.ModuleDict(dict(backbone=BUILD['deit']()))
    with pytest.raises(ValueError, match="ViT needs 'layer_wise_vit'"):
        with_our_constructor(dict(constructor='LearningRateDecayOptimizerConstructor',
                                  paramwise_cfg=dict(decay_type='stage_wise')), model)


def test_mmsegs_constructors_are_ours_on_a_backbone_of_this_project():
    ours = with_our_constructor(dict(constructor='LayerDecayOptimizerConstructor'),
                                nn.ModuleDict(dict(backbone=BUILD['deit']())))
    assert ours['constructor'] is LayerDecayOptimWrapperConstructor
