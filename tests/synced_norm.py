"""Two processes with torch's SyncBatchNorm under KeptOut: writes what the first finds.

torch has the five sums of its SyncBatchNorm for accelerators alone. Here they are by definition,
for a CPU; what is picked of a batch, what processes hand each other and how gradients go is as
ever.
"""
from __future__ import annotations

import sys
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from mmposenc.padding import KeptOut
from mmposenc.padding.layers import put_forms
from mmposenc.padding.trial import what_reads_padding

#: The images of each process, which has as many cells as it has, and the size of its batch.
IMAGES = [[(11, 7), (6, 12)], [(1, 5), (9, 3), (4, 4)]]
FULL = [(13, 12), (9, 6)]


def batches() -> list[tuple[Tensor, list[Tensor]]]:
    """Of each process, a batch with junk in its padding, and its images."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for sizes, full in zip(IMAGES, FULL, strict=True):
        images = [torch.randn(4, *size, generator=generator, dtype=torch.float64) for size in sizes]
        padded = torch.full((len(sizes), 4, *full), float('nan'), dtype=torch.float64)
        for row, image in zip(padded, images, strict=True):
            row[:, :image.shape[1], :image.shape[2]] = image
        found.append((padded, images))
    return found


def norm() -> nn.Module:
    torch.manual_seed(1)
    made = nn.SyncBatchNorm(4).double()
    nn.init.normal_(made.weight), nn.init.normal_(made.bias)
    return made


def put_sums() -> None:
    """The sums by definition, for (1, C, N)."""
    def stats(x, eps):
        return x.mean((0, 2)), (x.var((0, 2), correction=0) + eps).rsqrt()

    def gathered(x, means, invstds, running_mean, running_var, momentum, eps, counts):
        share, total = (counts / counts.sum())[:, None], counts.sum()
        mean = (share * means).sum(0)
        var = (share * (invstds ** -2 - eps + (means - mean) ** 2)).sum(0)
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(var * total / (total - 1), momentum)
        return mean, (var + eps).rsqrt()

    def along(values):
        return values[:, None]

    def reduced(grad, x, mean, invstd, weight, *needed):
        centred = (grad * (x - along(mean))).sum((0, 2))
        return grad.sum((0, 2)), centred, centred * invstd, grad.sum((0, 2))

    def passed(grad, x, mean, invstd, weight, total, centred, counts):
        cells = counts.sum()
        inner = along(total / cells) + (x - along(mean)) * along(invstd ** 2 * centred / cells)
        return (grad - inner) * along(invstd * weight)

    torch.batch_norm_stats, torch.batch_norm_gather_stats_with_counts = stats, gathered
    torch.batch_norm_backward_reduce, torch.batch_norm_backward_elemt = reduced, passed
    torch.batch_norm_elemt = lambda x, weight, bias, mean, invstd, eps: (
        (x - along(mean)) * along(invstd * weight) + along(bias))
    forward = nn.SyncBatchNorm.forward

    def on_a_cpu(self, x):
        with mock.patch.object(torch._C, '_get_privateuse1_backend_name', lambda: 'cpu'):
            return forward(self, x)
    nn.SyncBatchNorm.forward = on_a_cpu


def tried(net: nn.Module) -> str | None:
    """What the trial says of a network whose norms train."""
    model = nn.Sequential(nn.Conv2d(3, 4, 8, 8), net).double()
    model.data_preprocessor = nn.Identity()  # type: ignore[assignment]

    def maps(batch: Tensor, kept: KeptOut) -> list[Tensor]:
        with kept:
            return [model(batch)]
    return what_reads_padding(model, maps)


def work(rank: int, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{out}/meet', rank=rank, world_size=2)
    put_sums()
    net = nn.Sequential(norm())
    put_forms(net)
    if rank == 0:  # the first batch of several sizes that one process meets
        assert tried(net) is None
    padded = batches()[rank][0].requires_grad_()
    with KeptOut(IMAGES[rank], FULL[rank]):
        maps = net(padded)
    maps.square().mul(maps.detach().sin()).sum().backward()
    torch.save({'maps': maps.detach(), 'grad': padded.grad, 'weight': net[0].weight.grad,
                'bias': net[0].bias.grad, 'buffers': list(net.buffers())}, f'{out}/{rank}.pt')
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    mp.start_processes(work, (sys.argv[1],), nprocs=2, start_method='fork')
