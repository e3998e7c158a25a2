"""mmcv's synchronised BatchNorm against torch's BatchNorm."""
import pytest
import torch
import torch.distributed as dist
from torch import nn

from mmposenc.compat import sync_bn

from mmcv.ops import SyncBatchNorm  # isort: skip  (after mmposenc)


@pytest.fixture
def one_process(tmp_path):
    if dist.is_initialized():
        pytest.skip('a process group of another test is there')
    dist.init_process_group('gloo', init_method=f'file://{tmp_path}/store', rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize('stats_mode', ['default', 'N'])
@pytest.mark.parametrize('momentum', [0.1, None])
def test_the_layer_of_one_process_is_a_batch_norm(one_process, stats_mode, momentum):
    torch.manual_seed(0)
    ours, theirs = SyncBatchNorm(3, momentum=momentum, stats_mode=stats_mode), nn.BatchNorm2d(
        3, momentum=momentum)
    nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    for _ in range(2):
        x = torch.randn(2, 3, 5, 4) * 3 + 1
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        grad = torch.randn(2, 3, 5, 4)
        got, want = ours(a), theirs(b)
        torch.testing.assert_close(got, want)
        for one, other in zip(
                torch.autograd.grad(got, [a, ours.weight, ours.bias], grad),
                torch.autograd.grad(want, [b, theirs.weight, theirs.bias], grad), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    for name, buffer in ours.named_buffers():
        torch.testing.assert_close(buffer, theirs.get_buffer(name))
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_the_variance_is_unbiased_by_the_cells_of_all_processes():
    """(Means and gradients are shared by mmcv's layer.)"""
    x, shape = torch.randn(2, 3, 7), (2, 3, 7)
    mean, var, running = torch.zeros(3), torch.ones(3), [torch.zeros(3), torch.zeros(3)]
    sync_bn.sync_bn_forward_output(x, mean, var, torch.ones(3), mean, *running, torch.zeros(shape),
                                   torch.zeros(3), torch.zeros(shape), 1e-5, 1.0, 5)
    torch.testing.assert_close(running[1], torch.full((3,), 70 / 69))
