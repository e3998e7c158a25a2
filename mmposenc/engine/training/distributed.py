"""Makes several processes compute what one process computes on the same images."""
from __future__ import annotations

from datetime import timedelta

import torch
from mmengine.device import get_device
from mmengine.model import is_model_wrapper
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.nn.functional import all_reduce

from mmposenc.encodings import PEG


class CPUSyncBatchNorm(nn.BatchNorm2d):
    """torch's SyncBatchNorm, which needs a GPU, for processes on a CPU."""

    @classmethod
    def from_sync_batch_norm(cls, norm: nn.SyncBatchNorm) -> CPUSyncBatchNorm:
        """Make one with the options, weights and statistics of another norm."""
        replacement = cls(norm.num_features, norm.eps, norm.momentum, norm.affine,
                          norm.track_running_stats)
        replacement.__dict__.update(vars(norm))
        return replacement

    def _check_input_dim(self, x: Tensor) -> None:
        """Accept any number of axes, as SyncBatchNorm does."""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and dist.is_initialized()):
            return super().forward(x)
        axes = [0, *range(2, x.dim())]
        shape = [1, -1] + [1] * (x.dim() - 2)
        count = x.new_tensor([x.numel() / x.shape[1]])
        # First the mean, then the squares of the differences: a difference of two large sums would
        # lose digits.
        sums = all_reduce(torch.cat([x.sum(axes), count]))
        total = sums[-1].detach()
        mean = sums[:-1] / total
        centred = x - mean.view(shape)
        variance = all_reduce(centred.square().sum(axes)) / total
        if self.track_running_stats and self.running_mean is not None:
            self._update_running_statistics(mean.detach(), variance.detach(), float(total))
        out = centred * (variance + self.eps).rsqrt().view(shape)
        return out * self.weight.view(shape) + self.bias.view(shape) if self.affine else out

    @torch.no_grad()
    def _update_running_statistics(self, mean: Tensor, variance: Tensor, total: float) -> None:
        self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance * total / max(total - 1, 1), share)


def join_on_a_cpu(launcher: str, timeout: float = 1800) -> None:
    """Joins the other processes through gloo, where there is no GPU.

    Args:
        launcher: what started the processes; only torchrun ('pytorch') will do.
        timeout: seconds to wait for another process in any exchange (``env_cfg.dist_cfg.timeout``).

    Raises:
        ValueError: for another launcher, or a timeout that is no number above 0.
    """
    if launcher != 'pytorch':
        raise ValueError(f"--launcher {launcher}: without a GPU only 'pytorch' (torchrun) is "
                         'supported')
    if not isinstance(timeout, (int, float)) or timeout <= 0:
        raise ValueError(f'env_cfg.dist_cfg.timeout={timeout!r} must be seconds, above 0')
    dist.init_process_group('gloo', timeout=timedelta(seconds=timeout))


def synchronize_norms(model: nn.Module) -> nn.Module:
    """Makes the statistics of a model's norms those of all processes' images, where they must be.

    The BatchNorms of PEGs become synchronized ones, as a PEG's statistics are those of the whole
    batch; on a CPU those that are synchronized already (``SyncBN``) become some that work there.

    Args:
        model: changed in place; not wrapped yet.
    """
    for module in list(model.modules()):
        if isinstance(module, PEG):
            nn.SyncBatchNorm.convert_sync_batchnorm(module)
    if get_device() == 'cpu':
        for parent in list(model.modules()):
            for name, child in parent.named_children():
                if isinstance(child, nn.SyncBatchNorm):
                    setattr(parent, name, CPUSyncBatchNorm.from_sync_batch_norm(child))
    return model


def unwrapped_model(model: nn.Module) -> nn.Module:
    """The model itself, without the wrapper that it has if several processes train."""
    return model.get_submodule('module') if is_model_wrapper(model) else model
