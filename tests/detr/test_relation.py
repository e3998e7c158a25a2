"""Biases of decoders by boxes: against their formulas, and in every detector."""
import math
import pickle
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.utils.checkpoint
from helpers.concurrent_calls import in_threads
from helpers.tiny_backbones import randomize
from helpers.tiny_detr import FAMILY, build, images, predict, short, total_loss

from mmposenc.detr import boxes as module
from mmposenc.detr.boxes import BoxRPB, PositionRelation

RELATION, BIAS = dict(type='mmposenc.PositionRelation'), dict(type='mmposenc.BoxRPB', hidden_dims=8)
NAMES = [name for name in FAMILY if name != 'DDQDETR']


def some_boxes(*shape):
    return torch.rand(*shape, 4, dtype=torch.float64) * 0.8 + 0.1


def test_relations_of_boxes(monkeypatch):
    """Sines are interleaved with cosines, those of one number after the other."""
    relation = PositionRelation(3, embed_dims=4).double()
    one, other = some_boxes(2, 3), some_boxes(2, 5)
    weight, bias = relation.pos_proj[0].weight[..., 0, 0], relation.pos_proj[0].bias
    expected = torch.empty(2, 3, 3, 5, dtype=torch.float64)
    for b in range(2):
        for i, (x, y, w, h) in enumerate(one[b].float().tolist()):
            for j, (x2, y2, w2, h2) in enumerate(other[b].float().tolist()):
                numbers = [math.log(abs(x - x2) / (w + 1e-5) + 1),
                           math.log(abs(y - y2) / (h + 1e-5) + 1),
                           math.log((w + 1e-5) / (w2 + 1e-5)), math.log((h + 1e-5) / (h2 + 1e-5))]
                sines = [wave(number * 100 / 10000 ** (2 * t / 4)) for number in numbers
                         for t in range(2) for wave in (math.sin, math.cos)]
                expected[b, :, i, j] = (weight @ torch.tensor(sines).double() + bias).relu()
    found = relation(one, other)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)  # sines are float32
    grads = torch.autograd.grad(found.cos().sum(), list(relation.parameters()))
    assert all(grad.abs().max() > 0 for grad in grads)
    monkeypatch.setattr(module, '_PAIRS', 1)  # a query at a time
    by_one = relation(one, other)
    torch.testing.assert_close(by_one, found)
    torch.testing.assert_close(
        torch.autograd.grad(by_one.cos().sum(), list(relation.parameters())), grads)


@pytest.mark.parametrize('mode', ['linear', 'log'])
def test_biases_from_the_edges_of_boxes(mode):
    bias = BoxRPB(3, hidden_dims=5, stride=8, mode=mode).double()
    randomize(bias, 1.0)
    boxes, extents = some_boxes(2, 3), torch.tensor([[2, 4], [3, 5]])

    def delta(edge, cell):
        away = edge - (cell + 0.5) * 8
        return math.copysign(math.log(1 + abs(away), 8), away) if mode == 'log' else away

    expected = torch.empty(2, 3, 3, 3, 5, dtype=torch.float64)
    for b, (rows, cols) in enumerate(extents.tolist()):
        for i, (x, y, w, h) in enumerate(boxes[b].float().tolist()):
            edges = [[(at - side / 2) * cells * 8, (at + side / 2) * cells * 8]
                     for at, side, cells in ((x, w, cols), (y, h, rows))]
            for r in range(3):
                for c in range(5):
                    expected[b, :, i, r, c] = sum(network(torch.tensor(
                        [delta(edge, cell) for edge in own], dtype=torch.float64))
                        for network, own, cell in ((bias.cpb_mlp1, edges[0], c),
                                                   (bias.cpb_mlp2, edges[1], r)))
    found = bias(boxes, (3, 5), extents)
    torch.testing.assert_close(found, expected.flatten(3), atol=1e-3, rtol=1e-4)
    assert all(grad.abs().max() > 0 for grad in torch.autograd.grad(
        found.cos().sum(), list(bias.parameters())))


def config(name, **told):
    cfg = FAMILY[name]()
    cfg['decoder'].update({'num_layers': 3, **told})
    return cfg


def with_both(name):
    told = dict(relation=RELATION)
    if name not in ('DeformableDETR', 'DINO'):
        told['box_bias'] = BIAS
    return config(name, **told)


@pytest.mark.parametrize('name', short(NAMES, 'DABDETR', 'DINO'))
def test_a_detector_trains_them(name):
    """Each has a gradient; without weights they change nothing; the names of the rest stay; the
    whole model can be pickled."""
    model, plain = build(with_both(name)), build(config(name))
    loss = total_loss(model, images(((64, 96), (50, 70))))
    loss.backward()
    found = {name: p for name, p in model.named_parameters()
             if 'decoder.relation' in name or 'decoder.box_bias' in name}
    assert found and all(p.grad is not None and p.grad.abs().max() > 0 for p in found.values())
    with torch.autocast('cpu', torch.bfloat16):
        assert total_loss(model, images(((64, 96), (50, 70)))).isfinite()
    rest = {name: p for name, p in model.state_dict().items() if name not in found}
    plain.load_state_dict(rest)
    pickle.dumps(model)
    data = images(((64, 96),))
    before, without = predict(model, data)[0].scores, predict(plain, data)[0].scores
    assert (before - without).abs().max() > 1e-7
    with torch.no_grad():
        for p in found.values():
            p.zero_()
    torch.testing.assert_close(predict(model, data)[0].scores, without)


def test_a_relation_is_that_of_two_layers_in_a_row():
    model, seen = build(config('DETR', relation=RELATION, num_layers=4)), []
    model.decoder.relation.register_forward_pre_hook(lambda module, boxes: seen.append(boxes))
    predict(model, images(((64, 96),)))
    for (_, later), (before, _) in pairwise(seen):
        assert torch.equal(before, later)
    assert not torch.equal(*seen[2])


def test_denoising_queries_are_not_seen():
    """Whatever their boxes are, the others give what they give without them."""
    model = build(with_both('DINO')).eval()
    dims = model.embed_dims
    torch.manual_seed(0)
    shapes = torch.tensor([[4, 6], [2, 3]])
    memory = torch.randn(1, 30, dims)
    query, boxes = torch.randn(1, 9, dims), some_boxes(1, 9).float()
    mask = torch.zeros(9, 9, dtype=torch.bool)
    mask[4:, :4] = mask[:2, 2:4] = mask[2:4, :2] = True
    shared = dict(memory=memory, memory_mask=None, spatial_shapes=shapes,
                  level_start_index=torch.tensor([0, 24]), valid_ratios=torch.ones(1, 2, 2))

    def run(kept, some, mask):
        return model.forward_decoder(query=query[:, kept], reference_points=some[:, kept],
                                     dn_mask=mask, **shared)['hidden_states']
    everything = slice(None)
    found = run(everything, boxes, mask)
    torch.testing.assert_close(found[:, :, 4:], run(slice(4, None), boxes, None))
    changed = boxes.clone()
    changed[:, :2] = some_boxes(1, 2).float()
    other = run(everything, changed, mask)
    torch.testing.assert_close(other[:, :, 2:], found[:, :, 2:])
    assert (other[:, :, :2] - found[:, :, :2]).abs().max() > 1e-4


@pytest.mark.parametrize('name', short(NAMES, 'DETR', 'DINO'))
def test_threads_with_other_images(name):
    """Nothing of a call is kept on a module."""
    model = build(with_both(name)).eval()
    batches = [images((size,)) for size in ((64, 96), (96, 48))]

    def run(batch):
        with torch.no_grad():
            return predict(model, batch)[0]

    wanted = [run(batch) for batch in batches]
    kept = [set(vars(module)) for module in model.modules()]
    for number, out in in_threads(run, batches, times=4):
        torch.testing.assert_close(out.bboxes, wanted[number].bboxes)
        torch.testing.assert_close(out.scores, wanted[number].scores)
    assert [set(vars(module)) for module in model.modules()] == kept


def test_a_decoder_that_is_wrapped_is_an_error():
    """It would run its layers without their biases."""
    model = build(config('DETR', relation=RELATION))
    model.decoder.forward = partial(torch.utils.checkpoint.checkpoint, model.decoder.forward)
    with pytest.raises(RuntimeError, match='recompute or wrap its layers'):
        predict(model, images(((64, 96),)))
