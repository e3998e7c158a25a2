"""What ContextPool is compared with, against the loop and by counting. (Weights by pairs:
encodings/test_context_pool.py.)"""
import torch
import torch.nn.functional as F
from helpers.pooling_loops import loop, make

from mmposenc.functional.pooling.ablations import global_mean, random_mean, window_mean


def test_global_mean():
    x, logits, _ = make((3, 4))
    expected = loop(x, logits, torch.full_like(logits, 1e9), (3, 4))
    torch.testing.assert_close(global_mean(x, logits.exp()), expected)


def test_window_mean_where_gradients_of_padded_pooling_are_wrong(monkeypatch):
    """On a GPU torch's avg_pool2d gives each cell the gradient of another, as far before it as the
    padding is wide."""
    pool = F.avg_pool2d

    def pool_of_gpu(x, kernel, stride=1, padding=(0, 0)):
        moved = pool(F.pad(x, (0, 2 * padding[1], 0, 2 * padding[0])), kernel, stride)
        return moved + (pool(x, kernel, stride, padding) - moved).detach()
    monkeypatch.setattr(F, 'avg_pool2d', pool_of_gpu)
    x, logits, _ = make((4, 5))
    inputs = x.requires_grad_(), logits.exp().requires_grad_()
    assert torch.autograd.gradcheck(lambda *args: window_mean(*args, (4, 5), 3), inputs)


def test_random_mean_draws_from_all_of_the_image_and_no_other():
    x, logits, _ = make((9, 11), batch=2)
    x = torch.eye(99, dtype=torch.float64).expand(2, -1, -1)
    extents = torch.tensor([[9, 11], [4, 5]])
    out = random_mean(x, torch.ones(2, 99, dtype=torch.float64), (9, 11), extents, 20)
    drawn = (out[0] > 0).sum(1)
    assert int(drawn.min()) > 12 and int(drawn.max()) <= 21
    assert bool((out[0].diagonal() > 0).all())
    assert bool((out[0].sum(0) > 0).all()) and float((out[0] > 0).sum(0).float().std()) < 8
    inside = torch.zeros(9, 11, dtype=torch.bool)
    inside[:4, :5] = True
    others = out[1] * (1 - torch.eye(99))
    assert not others[:, ~inside.flatten()].any() and others[:, inside.flatten()].any(0).all()
