"""RT-DETR against the numbers of transformers' model, and its promises about sizes and padding."""
import math
from functools import partial

import pytest
import torch
from helpers import tiny_detr as tiny
from helpers.golden_files import load_golden
from helpers.released_detectors import SIZES, drawn_weights, names_in, outcome

from mmposenc.checkpoint import convert

RESNET = partial(dict, type='mmposenc.ResNetVD', base_channels=4, stem_channels=4,
                 out_indices=(1, 2, 3), norm_cfg=dict(type='BN', requires_grad=False))
V2 = partial(tiny.rtdetr, dims=24, heads=3, channels=(32, 64, 128), backbone=RESNET(depth=50))
CASES = {
    'v1': partial(tiny.rtdetr, channels=(8, 16, 32), neck=dict(expansion=0.5),
                  backbone=RESNET(depth=18)),
    'v2': V2, 'v2 discrete': partial(V2, cross=dict(num_points=[2, 2, 2], sampling='discrete'))}


def released(case: str) -> dict[str, torch.Tensor]:
    """Random weights under Hugging Face's names, which the golden numbers are of."""
    shapes = names_in('rt_detr.json')
    return drawn_weights({**shapes[case[:2]], **shapes[case]})


@pytest.mark.parametrize('case', CASES)
def test_scores_boxes_and_losses_are_those_of_transformers(case, same_noise, float64) -> None:
    """On a square and on an oblong image; with losses of the encoder, each layer and denoising."""
    model = tiny.build(CASES[case]()).double()
    state = convert(released(case), 'huggingface-rt-detr')
    _, expected = load_golden('rt_detr')
    eps = torch.finfo(torch.float32).eps  # mmdet adds it to the number of boxes.
    for number, size in enumerate(SIZES):
        logits, boxes, losses = outcome(model, state, size)
        parts = ('enc_loss', 'd0.loss', 'loss', 'd0.dn_loss', 'dn_loss')
        found = torch.cat([losses[f'{part}_{kind}'].detach().view(1) for part in parts
                           for kind in ('cls', 'bbox', 'iou')]).view(5, 3)
        for row, boxes_there in zip(found, (3, 3, 3, 9, 9), strict=True):
            row[1:] *= (boxes_there + eps) / boxes_there
        for ours, key in ((logits[-1], 'logits'), (boxes[-1], 'boxes'), (found, 'losses')):
            torch.testing.assert_close(ours, expected[f'{case}.{number}.{key}'], rtol=1e-12,
                                       atol=1e-12)


ROTARY = dict(type='mmposenc.RotaryEmbedding')
PADDING = {
    'peg, irpe': partial(tiny.rtdetr, encoder=dict(pos_encoding=tiny.PEG,
                                                   rel_pos_encoding=tiny.IRPE)),
    'points': partial(tiny.rtdetr, cross=dict(num_points=[3, 1, 2])),
    'discrete': partial(tiny.rtdetr, num_queries=5, cross=dict(num_points=[2, 1, 2],
                                                               sampling='discrete')),
    'rf-detr': tiny.rfdetr,
    'rf-detr, two levels': partial(tiny.rfdetr, levels=2, neck=dict(scales=(2, 0.5)), backbone=dict(
        pos_encoding=None, rel_pos_encoding=ROTARY))}


@pytest.mark.parametrize('case', PADDING)
def test_an_image_has_the_boxes_and_losses_that_it_has_alone(case, same_noise, float64) -> None:
    """Beside a larger image, and one that is a cell high at the coarsest level. BatchNorm of a
    training sees all images, so it is in evaluation."""
    model = tiny.build(PADDING[case]()).double()
    model.data_preprocessor.pad_size_divisor = 8 if case.startswith('rf') else 1
    sizes = ((64, 100), (31, 80), (96, 128))
    together, *alone = [tiny.results(model, each) for each in (sizes, *((size,) for size in sizes))]
    for number, (predicted, _) in enumerate(alone):
        for key in ('scores', 'bboxes'):
            torch.testing.assert_close(together[0][number][key], predicted[0][key], rtol=1e-6,
                                       atol=1e-6)
    for name, loss in together[1].items():
        mean = sum(losses[name] for _, losses in alone) / len(sizes)
        torch.testing.assert_close(loss, mean, rtol=1e-6, atol=1e-6)
    sum(loss.sum() for loss in together[1].values()).backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize('config, maps', [
    (tiny.rtdetr, '8x4, 4x2, 2x1'), (tiny.dfine, '8x4, 4x2, 2x1'),
    (partial(tiny.rfdetr, levels=3, neck=dict(scales=(2, 1, 0.5))), '16x8, 8x4, 4x2'),
    (partial(tiny.rfdetr, backbone=dict(patch_size=(2, 32))), '32x1')])
def test_images_without_objects_and_all_cells_as_queries(config, maps) -> None:
    """Also where the maps have one column at the coarsest level, or one image no object; one query
    more is refused."""
    cells = sum(math.prod(map(int, each.split('x'))) for each in maps.split(', '))
    model = tiny.build(config(num_queries=cells, test_cfg=dict(max_per_img=9)))
    data = tiny.images(((64, 32), (64, 32)), boxes=False)
    tiny.total_loss(model.train(), data).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert all(len(each.scores) == 9 for each in tiny.predict(model, data))
    some = tiny.images(((64, 32), (64, 32)))
    some['data_samples'][1].gt_instances = data['data_samples'][1].gt_instances
    assert tiny.total_loss(model.train(), some).isfinite()
    model.num_queries += 1
    with pytest.raises(ValueError, match=rf'num_queries={cells + 1} is more than the {cells} cells '
                                         rf'of the maps \({maps}\)'):
        tiny.predict(model, data)


def test_layers_of_evaluation_and_deims_branches() -> None:
    """With three of the layers, an image has what a decoder of three layers gives."""
    options = dict(query_pos_layers=3, mlp_act_cfg=dict(type='SiLU'))
    model = tiny.build(tiny.rtdetr(decoder=dict(eval_layers=1, **options)))
    assert [type(each).__name__ for each in model.decoder.ref_point_head] == [
        'Linear', 'SiLU', 'Linear', 'SiLU', 'Linear']
    assert not any(isinstance(each, torch.nn.ReLU) for each in model.bbox_head.modules())
    data = tiny.images(((64, 96),))
    found = tiny.predict(model, data)[0]
    model.decoder.eval_layers, model.decoder.layers = None, model.decoder.layers[:1]
    torch.testing.assert_close(tiny.predict(model, data)[0].bboxes, found.bboxes)


def test_other_detectors_may_leave_their_encoder_to_the_neck() -> None:
    """As DINO here; DETR, whose decoder attends to one map, may not."""
    neck = tiny.rtdetr().neck
    cfg = tiny.small('DINO', levels=3, dims=16, backbone=tiny.pvt(out_indices=(1, 2, 3)))
    model = tiny.build({**cfg, 'neck': neck, 'encoder': None})
    data = tiny.images(((64, 96), (45, 61)))
    tiny.total_loss(model.train(), data).backward()
    assert all(p.grad is not None for p in model.parameters())
    with pytest.raises(ValueError, match='encoder=None: only a detector whose decoder samples'):
        tiny.build({**tiny.detr(), 'encoder': None})


@pytest.mark.parametrize('kind, gamma, alpha', [
    ('MatchedVarifocalLoss', 2.0, 0.75), ('MatchabilityAwareLoss', 1.5, 1.0),
    ('IoUAwareBCELoss', 2.0, 0.25)])
def test_losses_of_classes_follow_their_formulas(kind, gamma, alpha) -> None:
    """One score at a time; the gradient passes through no weights but those of RF-DETR's scores of
    other classes."""
    import mmposenc
    logits = torch.randn(4, 3, requires_grad=True)
    labels, ious = torch.tensor([3, 1, 0, 2]), torch.tensor([0.0, 0.7, 0.2, 0.0])
    loss = getattr(mmposenc.detr, kind)(loss_weight=2.0)(logits, (labels, ious), avg_factor=2)
    expected = 0
    for query in range(4):
        for number in range(3):
            p, hit = logits[query, number].sigmoid(), labels[query] == number
            q = ious[query] if hit else 0.0
            if kind == 'IoUAwareBCELoss':
                q = max(p.detach() ** alpha * q ** (1 - alpha), 0.01) if hit else q
                weight = 1.0 if hit else p ** gamma
            elif kind == 'MatchedVarifocalLoss':
                weight = q if hit else alpha * p.detach() ** gamma
            else:
                q, weight = q ** gamma, 1.0 if hit else alpha * p.detach() ** gamma
            expected -= weight * (q * p.log() + (1 - q) * (1 - p).log())
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, logits)[0] for each in (loss, expected)))
    assert torch.autograd.gradcheck(lambda x: getattr(mmposenc.detr, kind)(alpha=0)(
        x, (labels, ious.double())), logits.detach().double().requires_grad_())
    with pytest.raises(ValueError, match='gamma=-1 must be >= 0'):
        getattr(mmposenc.detr, kind)(gamma=-1)


def test_boxes_of_cells_are_mmdets() -> None:
    """To the bit in float32, with padding."""
    from mmdet.models.detectors import DeformableDETR
    model = tiny.build(tiny.rtdetr())
    shapes = torch.tensor([[13, 60], [7, 30], [4, 15]])
    memory = torch.randn(2, int(shapes.prod(1).sum()), 16)
    masks = [torch.zeros(2, *hw, dtype=torch.bool) for hw in shapes.tolist()]
    for mask, (rows, cols) in zip(masks, ((9, 41), (5, 21), (3, 11)), strict=True):
        mask[1, rows:], mask[1, :, cols:] = True, True
    for mask in (None, torch.cat([each.flatten(1) for each in masks], 1)):
        found = model.gen_encoder_output_proposals(memory, mask, shapes.clone())
        theirs = DeformableDETR.gen_encoder_output_proposals(model, memory, mask, shapes)
        torch.testing.assert_close(found[1].expand_as(theirs[1]), theirs[1], rtol=0, atol=0)
        torch.testing.assert_close(found[0], theirs[0], rtol=0, atol=0)


def test_levels_with_different_numbers_of_points() -> None:
    """As mmcv's attention with as many points everywhere, of which some have no weight."""
    from mmposenc.openmmlab.mmdet.detr.deform_attention import MultiScaleDeformableAttention
    counts, sizes = [1, 3, 2], dict(embed_dims=8, num_heads=2, num_levels=3, dropout=0.0)
    some = MultiScaleDeformableAttention(num_points=counts, **sizes)
    every = MultiScaleDeformableAttention(num_points=3, **sizes)
    used = torch.arange(3) < torch.tensor(counts)[:, None]
    state = every.state_dict()
    bias = state['sampling_offsets.bias'].view(2, 3, 3, 2)
    torch.testing.assert_close(some.sampling_offsets.bias, bias[:, used].flatten())
    with torch.no_grad():
        for name in ('sampling_offsets', 'attention_weights'):
            weight = torch.randn_like(getattr(some, name).weight)
            getattr(some, name).weight.copy_(weight)
            whole = torch.zeros(2, 3, 3, weight.shape[0] // 12, 8)
            whole[:, used] = weight.view(2, 6, -1, 8)
            getattr(every, name).weight.copy_(whole.flatten(0, 3))
        every.attention_weights.bias.view(2, 3, 3)[:, ~used] = -torch.inf
        for name in ('value_proj', 'output_proj'):
            getattr(every, name).load_state_dict(getattr(some, name).state_dict())
        # Offsets are shares of the number of points of their level.
        scale = (3 / torch.tensor(counts)).view(1, 3, 1, 1, 1)
        every.sampling_offsets.weight.view(2, 3, 3, 2, 8).mul_(scale)
        every.sampling_offsets.bias.view(2, 3, 3, 2).mul_(scale[..., 0])
    inputs = dict(query=torch.randn(2, 5, 8), value=torch.randn(2, 63, 8),
                  reference_points=torch.rand(2, 5, 3, 4),
                  spatial_shapes=torch.tensor([[6, 8], [3, 4], [1, 3]]),
                  level_start_index=torch.tensor([0, 48, 60]))
    torch.testing.assert_close(some(**inputs), every(**inputs))
