"""Suppression of lanes against the greedy loop over rows."""
import pytest
import torch

from mmposenc.operators.nms import line_nms_forward


def lanes(count, seed=0):
    """Lanes that start low or high and lie close to some others; scores with equal ones."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, generator=generator) * 60 + torch.rand(
        count, 72, generator=generator) * 4
    start = torch.rand(count, generator=generator) * 0.6
    length = torch.randint(0, 60, (count,), generator=generator).float()
    scores = (torch.rand(count, generator=generator) * 20).round() / 20
    first = torch.stack([1 - scores, scores, start, x[:, 0], length], 1)
    return torch.cat([first, x], 1), scores


def near(a, b, overlap):
    """Mean distance over the rows of both; false without such rows."""
    spans = [(int(float(lane[2]) * 71 + 0.5), int(lane[4])) for lane in (a, b)]
    first = max(start for start, _ in spans)
    last = min(min(start + length - 1 for start, length in spans), 71)
    if last < first:
        return False
    return float((a[5 + first:6 + last] - b[5 + first:6 + last]).abs().mean()) < overlap


def loop(boxes, scores, overlap, top_k):
    order = sorted(range(len(boxes)), key=lambda i: -float(scores[i]))
    kept, gone, parent = [], set(), [0] * len(boxes)
    for place, i in enumerate(order):
        if i in gone or len(kept) == top_k:
            continue
        kept.append(i)
        for j in [i, *(j for j in order[place + 1:] if near(boxes[i], boxes[j], overlap))]:
            gone.add(j)
            parent[j] = len(kept)
    return kept, parent


@pytest.mark.parametrize('count, overlap, top_k', [
    (40, 3.0, 100), (40, 10.0, 100), (40, 3.0, 4), (40, 0.0, 100), (0, 3.0, 4)])
def test_equals_the_greedy_loop(count, overlap, top_k):
    boxes, scores = lanes(count)
    kept, parent = loop(boxes, scores, overlap, top_k)
    keep, number, parents = line_nms_forward(boxes, scores, overlap, top_k)
    assert int(number) == len(kept) and number.shape == ()
    assert keep.tolist() == kept + [0] * (count - len(kept)) and parents.tolist() == parent


@pytest.mark.parametrize('change, message', [
    (lambda boxes, scores: (boxes[:, :-1], scores), r'boxes must have shape \(N, 77\)'),
    (lambda boxes, scores: (boxes, scores * torch.nan), 'scores must not be NaN')])
def test_bad_lanes(change, message):
    with pytest.raises(ValueError, match=message):
        line_nms_forward(*change(*lanes(3)), 3.0, 4)
