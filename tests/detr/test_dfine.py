"""D-FINE against the numbers of its release and of transformers' model, and its promises."""
from functools import partial

import pytest
import torch
from helpers import tiny_detr as tiny
from helpers.golden_files import load_golden
from helpers.released_detectors import SIZES, drawn_weights, names_in, outcome

from mmposenc.checkpoint import convert
from mmposenc.detr.refinement import BoxBins, distillation_loss, localization_loss
from mmposenc.openmmlab.mmdet.detr.dfine_head import united

SILU = dict(type='SiLU')
SMALL = partial(tiny.dfine, channels=(256, 512, 1024), cross=dict(num_points=[3, 6, 3]),
                backbone=dict(type='mmposenc.HGNetV2', model_name='hgnetv2_b0'))
CASES = {'s': {}, 'deim': dict(mlp_act_cfg=SILU), 'wide': dict(eval_layers=2, layer_scale=1.5)}


@pytest.mark.parametrize('case', CASES)
def test_scores_boxes_losses_and_gradients_are_those_of_the_releases(case, same_noise, float64
                                                                      ) -> None:
    """On a square and on an oblong image; of 's' scores and boxes are those of transformers."""
    cfg = SMALL(decoder=CASES[case])
    cfg.decoder.num_layers = 3
    if case == 'deim':
        cfg.decoder.layer_cfg.ffn_cfg.act_cfg = SILU
        cfg.bbox_head.loss_cls.type = 'mmposenc.MatchabilityAwareLoss'
    model = tiny.build(cfg).double()
    shapes = names_in('d_fine.json.xz')['wide' if case == 'wide' else 's']
    state = convert(drawn_weights(shapes), 'd-fine' if case == 'wide' else 'huggingface-d-fine')
    _, expected = load_golden('d_fine')
    eps = torch.finfo(torch.float32).eps  # mmdet adds it to the number of boxes.
    for number, size in enumerate(SIZES):
        key = f'{case}.{number}'
        logits, boxes, losses = outcome(model, state, size)
        for name in losses:
            if name.endswith(('bbox', 'iou')):
                count = 9 if 'dn_' in name else int(expected[f'{key}.num_boxes'])
                losses[name] = losses[name] * (count + eps) / count
        model.zero_grad()
        sum(losses.values()).backward()
        squares = [sum(p.grad.square().sum() for p in getattr(model, part).parameters())
                   for part in ('backbone', 'neck', 'decoder', 'bbox_head')]
        found = dict(logits=logits[-1], boxes=boxes[-1], gradients=torch.stack(squares),
                     losses=torch.stack([losses[name].detach() for name in sorted(losses)]))
        for kind, value in found.items():
            torch.testing.assert_close(value, expected[f'{key}.{kind}'], rtol=1e-11, atol=1e-12)


PADDING = {
    'peg, irpe': dict(encoder=dict(pos_encoding=tiny.PEG, rel_pos_encoding=tiny.IRPE)),
    'wider layers': dict(decoder=dict(eval_layers=1, layer_scale=2)),
    'two maps': dict(num_feature_levels=2, cross=dict(num_levels=2, num_points=[2, 2]), dims=24,
                     heads=3, backbone=tiny.pvt(out_indices=(2, 3)), channels=(16, 16))}


@pytest.mark.parametrize('case', PADDING)
def test_an_image_has_the_boxes_that_it_has_alone(case, same_noise, float64) -> None:
    """Beside a larger image, and one that is a cell high at the coarsest level; losses do not
    depend on how much padding there is."""
    model = tiny.build(tiny.dfine(**PADDING[case])).double()
    sizes = ((64, 100), (31, 80), (96, 128))
    predicted, losses = tiny.results(model, sizes)
    for number, size in enumerate(sizes):
        (alone,), _ = tiny.results(model, (size,))
        for key in ('scores', 'bboxes'):
            torch.testing.assert_close(predicted[number][key], alone[key], rtol=1e-6, atol=1e-6)
    model.data_preprocessor.pad_size_divisor = 96
    _, padded = tiny.results(model, sizes)
    torch.testing.assert_close(padded, losses, rtol=1e-6, atol=1e-6)
    sum(padded.values()).backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize('options, message', [
    (dict(head=dict(type='DINOHead')), "bbox_head.type='DINOHead' must be 'mmposenc.DFINEHead'"),
    (dict(head=dict(reg_max=7)), 'reg_max=7 must be even and at least 4'),
    (dict(head=dict(reg_scale=0.0)), 'reg_scale=0.0 must be'),
    (dict(head=dict(ddf_weight=-1.0)), 'ddf_weight=-1.0 must be >= 0'),
    (dict(decoder=dict(layer_scale=0)), 'layer_scale=0 must be'),
    (dict(decoder=dict(eval_layers=1, layer_scale=1.3)), 'decoder.layer_scale=1.3 gives 21 chann'),
    (dict(decoder=dict(eval_layers=3)), 'decoder.eval_layers=3 must be from 1 to num_layers=2'),
    (dict(decoder=dict(relation=dict(type='mmposenc.PositionRelation'))), 'decoder.relation=.*D-F'),
    (dict(neck=dict(fusion='elan')), "fusion='elan' must be 'csp' or 'gelan'"),
    (dict(cross=dict(num_points=[4, 4])), r'num_points=\[4, 4\] must be at least 1, or as many')])
def test_bad_options_are_named(options, message) -> None:
    cfg = tiny.dfine(**{key: value for key, value in options.items() if key != 'head'})
    cfg.bbox_head.update(options.get('head', {}))
    with pytest.raises(ValueError, match=message):
        tiny.build(cfg)


def test_bins_follow_their_formulas() -> None:
    """One side at a time; and a box is found again from its own bins."""
    bins = BoxBins(reg_max=8, reg_scale=3.0, up=0.6).double()
    step = (0.6 * 3 + 1) ** (2 / 6)
    right = [step ** number - 1 for number in (1, 2, 3)]
    values = [-3.6, *(-each for each in right[::-1]), 0.0, *right, 3.6]
    torch.testing.assert_close(bins.values(), torch.tensor(values).double(), rtol=1e-6, atol=1e-6)
    start = torch.rand(5, 4).double() / 2 + 0.2
    objects = start.roll(1, 0) * 3 - 0.4  # Some sides lie outside of all bins.
    objects[:, 2:] += objects[:, :2] + 0.5
    left, share = bins.targets(start, objects)
    for row in range(5):
        x, y, w, h = start[row]
        for side, (middle, size, sign) in enumerate(((x, w, -1), (y, h, -1), (x, w, 1), (y, h, 1))):
            away = sign * (objects[row, side] - middle) / (size / 3) - 1.5
            below = max([n for n in range(8) if values[n] <= away] or [0])
            part = (away - values[below]) / (values[below + 1] - values[below])
            assert left[row, side] == below
            torch.testing.assert_close(share[row, side], part.clamp(0, 1), rtol=1e-6, atol=1e-6)
    corners = torch.full((5, 4, 9), -torch.inf).double()
    corners.scatter_(2, left[..., None], (1 - share).log()[..., None])
    corners.scatter_(2, left[..., None] + 1, share.log()[..., None])
    inside = (share > 0) & (share < 1)
    found = bins.boxes(start, corners.flatten(1))
    sides = torch.cat((found[:, :2] - found[:, 2:] / 2, found[:, :2] + found[:, 2:] / 2), 1)
    torch.testing.assert_close(sides[inside], objects[inside])


def test_losses_of_distributions_follow_their_formulas() -> None:
    corners, teacher = (torch.randn(3, 4 * 9, dtype=torch.float64, requires_grad=True)
                        for _ in range(2))
    left, share = torch.randint(8, (3, 4)), torch.rand(3, 4).double()
    loss = localization_loss(corners, left, share)
    chances = corners.view(3, 4, 9).softmax(-1)
    for row, side in ((0, 0), (2, 3)):
        below, above = chances[row, side, left[row, side]:][:2]
        part = share[row, side]
        torch.testing.assert_close(loss[row, side], -(1 - part) * below.log() - part * above.log())
    ours, theirs = ((each.view(3, 4, 9) / 5).softmax(-1) for each in (corners, teacher))
    expected = 25 * (theirs * (theirs / ours).log()).sum(-1)
    distilled = distillation_loss(corners, teacher)
    torch.testing.assert_close(distilled, expected)
    leaf = corners.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: distillation_loss(x, teacher.detach()), leaf)
    assert torch.autograd.gradcheck(lambda x: localization_loss(x, left, share), leaf)
    assert torch.autograd.grad(distilled.sum(), teacher, allow_unused=True) == (None,)


def test_matches_of_all_layers_are_united() -> None:
    """The object that most layers assign, of several the first; each query on its own."""
    assigned = torch.tensor([[[1, 0, 2, 0, 3]], [[2, 0, 2, 1, 0]], [[2, 0, 1, 0, 1]]])
    assert united(assigned, 3).tolist() == [[2, 0, 2, 1, 1]]
    assert united(torch.zeros(3, 2, 4, dtype=torch.long), 0).tolist() == [[0] * 4] * 2


def test_the_backbone_keeps_its_stem_and_norms() -> None:
    """They are as they were in a model that trains; the maps keep their sizes."""
    cfg = SMALL()
    cfg.backbone.update(frozen_stem=True, norm_eval=True, init_cfg=None)
    model = tiny.build(cfg).train()
    before = {name: value.clone() for name, value in model.backbone.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    tiny.total_loss(model, tiny.images(((64, 96),))).backward()
    optimizer.step()
    changed = {name for name, value in model.backbone.state_dict().items()
               if not torch.equal(value, before[name])}
    assert changed and all(name.endswith(('conv.weight', 'lab.scale', 'lab.bias'))
                           and '.stem.' not in name for name in changed)
