"""mmcv's synchronised BatchNorm against torch's BatchNorm."""
import pytest
import torch
import torch.distributed as dist
from mmcv.ops import SyncBatchNorm
from torch import nn

from mmposenc.operators import sync_bn


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


def test_two_processes_of_one_size_are_one_batch():
    """What the layer adds up and divides by two, done by hand."""
    torch.manual_seed(0)
    parts = torch.randn(2, 2, 3, 7)  # process, N, C, L
    weight, bias = torch.rand(3) + .5, torch.randn(3)
    norm = nn.BatchNorm1d(3)
    norm.weight.data, norm.bias.data = weight.clone(), bias.clone()
    x = parts.flatten(0, 1).requires_grad_()
    want, grad = norm(x), torch.randn(4, 3, 7)
    means = torch.zeros(2, 3)
    for part, mean in zip(parts, means, strict=True):
        sync_bn.sync_bn_forward_mean(part, mean)
    variances = torch.zeros(2, 3)
    for part, var in zip(parts, variances, strict=True):
        sync_bn.sync_bn_forward_var(part, means.mean(0), var)
    running = torch.zeros(3), torch.ones(3)
    kept, std, outs = torch.zeros(2, 2, 3, 7), torch.zeros(3), torch.zeros(2, 2, 3, 7)
    for i, part in enumerate(parts):
        running = torch.zeros(3), torch.ones(3)
        sync_bn.sync_bn_forward_output(part, means.mean(0), variances.mean(0), weight, bias,
                                       *running, kept[i], std, outs[i], 1e-5, 0.1, 2)
    torch.testing.assert_close(outs.flatten(0, 1), want)
    torch.testing.assert_close(running[0], norm.running_mean)
    torch.testing.assert_close(running[1], norm.running_var)
    by_param = torch.zeros(2, 2, 3)
    for i, part in enumerate(grad.view(2, 2, 3, 7)):
        sync_bn.sync_bn_backward_param(part, kept[i], by_param[i, 0], by_param[i, 1])
    wants = torch.autograd.grad(want, [x, norm.weight, norm.bias], grad)
    torch.testing.assert_close(by_param.sum(0)[0], wants[1])
    torch.testing.assert_close(by_param.sum(0)[1], wants[2])
    found = torch.zeros(2, 2, 3, 7)
    shared = by_param.mean(0)
    for i, part in enumerate(grad.view(2, 2, 3, 7)):
        sync_bn.sync_bn_backward_data(part, weight, *shared, kept[i], std, found[i])
    torch.testing.assert_close(found.flatten(0, 1), wants[0])
