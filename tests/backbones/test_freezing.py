"""What is frozen, and what of it is trained all the same."""
import re

import pytest
import torch
from helpers.tiny_backbones import BUILD, STAGES, images, randomized, total, with_gradients

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.backbones.archs.swin import TABLE

PEG = dict(type='PEG', zero_init=True)


def with_weights_of(model, other):
    load_pretrained(model, other.state_dict())
    return model


@pytest.mark.parametrize('options, trainable', [
    (dict(pos_encoding=PEG), 'pos_encodings.at.after0'),
    (dict(rel_pos_encoding=dict(type='IRPE', rpe_on='qkv')), 'rel_pos_encoding'),
    (dict(rel_pos_encoding=dict(type='ShawRPE', zero_init=True)), 'rel_pos_encoding')], ids=str)
@pytest.mark.parametrize('with_cp', [False, True])
@pytest.mark.parametrize('name', BUILD)
def test_a_new_encoding_trains_in_a_frozen_model(name, options, trainable, with_cp):
    """At first the model is what it was; gradients come where it is trained and nowhere else."""
    if name == 'swin' and 'rel_pos_encoding' in options:
        trainable = 'rel_pos_encoding.encodings.1'  # beside the window's biases
        options = dict(rel_pos_encoding=[TABLE, options['rel_pos_encoding']])
    plain = randomized(BUILD[name]()).eval()
    model = with_weights_of(BUILD[name](frozen_stages=STAGES[name], trainable=[trainable],
                                        with_cp=with_cp, **options), plain).train()
    outs = model(images())
    torch.testing.assert_close(outs, plain(images()), atol=2e-5, rtol=1e-5)
    total(outs).backward()
    trained = {key for key, p in model.named_parameters() if p.requires_grad}
    assert trained == {key for key, _ in model.named_parameters() if trainable in key}
    # That of a last block that keys alone see, or behind the last map, may have none.
    assert with_gradients(model) <= trained and with_gradients(model)
    free = with_weights_of(BUILD[name](**options), plain).eval()
    total(free(images())).backward()
    wanted = dict(free.named_parameters())
    for key in trained:
        torch.testing.assert_close(model.get_parameter(key).grad, wanted[key].grad, rtol=1e-4,
                                   atol=1e-5 * float(wanted[key].grad.abs().max()))


@pytest.mark.parametrize('name, kept', [(name, kept) for name in BUILD
                                        for kept in range(STAGES[name])])
def test_frozen_stages_stay_frozen_and_in_evaluation(name, kept):
    """And nothing else does; 0 is what comes before the first block, which in PVT is a stage's."""
    model = randomized(BUILD[name](frozen_stages=kept, drop_path_rate=0.5, positions=(-1, 0),
                                   pos_encoding=dict(type='PEG', norm_act=True))).train()
    total(model(images())).backward()
    stage = re.compile(r'(?:blocks|stages)\.(\d)\.|norm(\d)|pos_encodings\.at\.after(\d)\.')
    for key, module in model.named_modules():
        if any(module.children()):
            continue
        first = key.startswith(('patch_embed', 'pos_encodings.at.before', 'norm_pre'))
        found = stage.match(key)
        number = -1 if first else int(found[found.lastindex]) if found else STAGES[name]
        assert module.training == (number >= kept), key
        assert all(p.requires_grad == (number >= kept) for p in module.parameters()), key
    if name == 'vit':
        assert not model.cls_token.requires_grad
    assert with_gradients(model) <= {key for key, p in model.named_parameters() if p.requires_grad}


def test_the_neck_is_frozen_with_the_whole_backbone():
    model = BUILD['vit'](neck_channels=4, frozen_stages=STAGES['vit'])
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_the_statistics_of_what_is_trained_are():
    options = dict(pos_encoding=dict(type='PEG', norm_act=True), frozen_stages=4)
    for trainable in ((), ['pos_encodings']):
        model = BUILD['vit'](trainable=trainable, **options).train()
        norm = model.pos_encodings.at['after0'][0].proj[1]
        model(images())
        assert bool(norm.num_batches_tracked) == norm.training == bool(trainable)
        assert not model.eval().pos_encodings.at['after0'][0].training


def test_an_encoding_without_parameters_is_named_in_vain():
    """As mmposenc compare names that of each entry."""
    model = ViT('tiny', rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding'), frozen_stages=12,
                trainable=['rel_pos_encoding'])
    assert not any(each.requires_grad for each in model.blocks.parameters())
