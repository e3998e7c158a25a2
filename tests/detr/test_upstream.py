"""With no encoding, results and gradients are mmdet's, and its checkpoints load."""
import copy
from functools import partial

import pytest
import torch
from helpers import tiny_detr as tiny
from helpers.tiny_detr import (
    FAMILY,
    assert_gradients,
    build,
    dab,
    deformable,
    detr,
    gradients,
    images,
)

from mmposenc.detr import DetrEncoder

PADDED = ((64, 64), (45, 61))  # 45 and 61 are no multiples of the stride
FULL = ((64, 80), (64, 80))
RESNET = dict(backbone=tiny.resnet(out_indices=(3,)), channels=32)
LEVELS = dict(levels=3, backbone=tiny.resnet(out_indices=(2, 3)), channels=[16, 32])
CASES = {
    'DETR': lambda type_: detr(type_, **RESNET),
    'ConditionalDETR': lambda type_: FAMILY['ConditionalDETR'](type_, **RESNET),
    'DABDETR': lambda type_: dab(type_, **RESNET),
    'DABDETR, patterns': lambda type_: {**dab(type_, **RESNET), 'num_patterns': 2},
    'DINO': lambda type_: FAMILY['DINO'](type_, num_queries=7, **LEVELS),
    'DDQDETR': lambda type_: FAMILY['DDQDETR'](type_, num_queries=7, **LEVELS),
    'DeformableDETR, single': lambda type_: deformable(
        type_, backbone=tiny.resnet(out_indices=(3,)), channels=[32]),
    'DeformableDETR, multi': lambda type_: deformable(type_, **LEVELS),
    'DeformableDETR, refine': lambda type_: deformable(type_, with_box_refine=True, **LEVELS),
    'DeformableDETR, two-stage': lambda type_: deformable(
        type_, levels=2, backbone=tiny.resnet(out_indices=(2, 3)), channels=[16, 32], num_queries=3,
        with_box_refine=True, as_two_stage=True, dims=256),
}


@pytest.mark.parametrize('sizes', [
    pytest.param(PADDED, id='padded'), pytest.param(FULL, id='full', marks=pytest.mark.slow)])
@pytest.mark.parametrize('case', CASES)
def test_loss_and_gradients(case: str, sizes) -> None:
    name = case.partition(',')[0]
    theirs = build(CASES[case](name))
    ours = build(CASES[case](f'mmposenc.{name}'), seed=1)
    ours.load_state_dict(theirs.state_dict())  # strict: the names are the same
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert isinstance(ours.encoder, DetrEncoder)
    data = images(sizes)
    losses = []
    for model in (theirs, ours):
        model.train()
        torch.manual_seed(3)  # the noise of denoising queries
        losses.append(tiny.total_loss(model, data))
        losses[-1].backward()
    torch.testing.assert_close(losses[1], losses[0], atol=1e-5, rtol=1e-5)
    assert_gradients(gradients(ours), gradients(theirs))


@pytest.mark.parametrize('num_cp', [-1, 1])
@pytest.mark.parametrize('sizes', [PADDED, FULL])
def test_grounding_dino(sizes, num_cp, monkeypatch) -> None:
    """Losses and all gradients, the words' included, are mmdet's, also where layers are computed
    again."""
    from mmdet.models.layers.transformer import coordinate_to_encoding, dino_layers
    # mmdet 3.5 gives its decoder 256 sines a coordinate where it takes 128, as 3.3 has them.
    monkeypatch.setattr(dino_layers, 'coordinate_to_encoding',
                        lambda boxes, **_: coordinate_to_encoding(boxes, num_feats=128))
    cfg = partial(tiny.grounding, num_queries=7, **LEVELS)
    theirs, ours = build(cfg('GroundingDINO')), build({**cfg(), 'encoder': {
        **cfg()['encoder'], 'num_cp': num_cp}}, seed=1)
    ours.load_state_dict(theirs.state_dict())
    found = []
    for model in (theirs, ours):
        model.train()
        torch.manual_seed(3)
        text = tiny.words()
        text['embedded'].requires_grad_()
        data = model.data_preprocessor(images(sizes), training=True)
        for sample in data['data_samples']:
            boxes = sample.gt_instances
            boxes.positive_maps = torch.eye(9)[boxes.labels]
            boxes.text_token_mask = text['text_token_mask'][0].expand(len(boxes), -1)
        outputs = model.forward_transformer(
            model.extract_feat(data['inputs']), text, data['data_samples'])
        losses = model.bbox_head.loss(**outputs, batch_data_samples=data['data_samples'])
        loss, _ = model.parse_losses(losses)
        loss.backward()
        found.append((loss, {'words': text['embedded'].grad, **gradients(model)}))
    torch.testing.assert_close(found[1][0], found[0][0], atol=1e-5, rtol=1e-5)
    assert_gradients(found[1][1], found[0][1])
    assert {name.split('.')[1] for name in found[1][1] if name.startswith('encoder')} == {
        'layers', 'text_layers', 'fusion_layers'}


@pytest.mark.parametrize('name', FAMILY)
def test_weights_are_random_in_the_same_way(name: str) -> None:
    """Xavier where mmdet's detector has it, and encodings as they start."""
    from mmengine.registry import MODELS, init_default_scope
    init_default_scope('mmdet')
    relative = name in ('DETR', 'ConditionalDETR', 'DABDETR')
    attn = dict(rel_pos_encoding=dict(type='mmposenc.IRPE', ratio=2.0)) if relative else {}
    model = MODELS.build(copy.deepcopy(FAMILY[name](
        attn=attn, encoder=dict(encoder_pos='sine', pos_encoding=dict(type='mmposenc.PEG')))))
    model.init_weights()
    for layer in model.encoder.layers:
        assert not relative or not layer.self_attn.rel_pos_encoding.table_k.any()
        weight = layer.ffn.layers[1].weight  # Xavier: uniform up to sqrt(6 / (in + out))
        bound = (6 / sum(weight.shape)) ** 0.5
        assert 0.9 * bound < weight.abs().max() <= bound
    kernel = model.encoder.pos_encodings[0].encodings(0)[0].proj[0]
    assert not kernel.bias.any()
    # a PEG's kernels are normal of variance 2 / 9; Xavier would give at most sqrt(6 / 153) here
    assert 0.3 < kernel.weight.std() < 0.65


def test_checkpoint_of_the_whole_detector_is_not_overwritten(tmp_path) -> None:
    trained = build(detr(**RESNET))
    torch.save({'state_dict': trained.state_dict()}, tmp_path / 'trained.pth')
    from mmengine.registry import MODELS, init_default_scope
    init_default_scope('mmdet')
    model = MODELS.build(copy.deepcopy({**detr(**RESNET), 'init_cfg': dict(
        type='Pretrained', checkpoint=str(tmp_path / 'trained.pth'))}))
    model.init_weights()
    torch.testing.assert_close(model.state_dict(), trained.state_dict(), rtol=0, atol=0)
