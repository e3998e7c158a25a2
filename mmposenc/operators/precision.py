"""The dtype in which the operators compute."""
import torch


def compute_dtype(tensor: torch.Tensor) -> torch.dtype:
    """float32 for half precision, as mmcv's kernels accumulate, and else the tensor's own."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
