"""The attention maps of PSANet: one weight for each pair of cells."""
import torch
from torch import Tensor


def _difference(length: int, count: int, half: int, device: torch.device
                ) -> tuple[Tensor, Tensor]:
    """For i and j of ``length``: i - j + half, and whether it is in [0, count)."""
    at = torch.arange(length, device=device)
    at = at[:, None] - at + half
    return at.clamp(0, count - 1), (at >= 0) & (at < count)


def psamask_forward(input: Tensor, output: Tensor, psa_type: int, num_: int, h_feature: int,
                    w_feature: int, h_mask: int, w_mask: int, half_h_mask: int, half_w_mask: int
                    ) -> None:
    """Spreads the weights that each cell predicts for its surroundings over the whole map.

    PSANet (Zhao et al., ECCV 2018), section 3.3 and figure 3.

    Args:
        input: (N, h_mask * w_mask, H, W): at cell (h, w) the weight of the cell
            (h + i - half_h_mask, w + j - half_w_mask) in channel i * w_mask + j.
        output: (N, H * W, H, W), overwritten; zero for cells further away.
        psa_type: 0 collect: (other cell, cell); 1 distribute: (cell, other cell).
        num_: N.
    """
    output.copy_(_spread(input, psa_type, num_, h_feature, w_feature, h_mask, w_mask, half_h_mask,
                         half_w_mask).reshape(output.shape))


def _spread(input: Tensor, psa_type: int, num_: int, h_feature: int, w_feature: int, h_mask: int,
            w_mask: int, half_h_mask: int, half_w_mask: int) -> Tensor:
    """The output as (N, H, W, H, W)."""
    weights = input.reshape(num_, h_mask, w_mask, h_feature, w_feature)
    i, near_h = _difference(h_feature, h_mask, half_h_mask, input.device)  # (H of others, H)
    j, near_w = _difference(w_feature, w_mask, half_w_mask, input.device)
    h = torch.arange(h_feature, device=input.device)[:, None]
    w = torch.arange(w_feature, device=input.device)
    # (N, other rows, other columns, rows, columns)
    pairs = weights[:, i[:, None, :, None], j[None, :, None], h, w]
    pairs = pairs * (near_h[:, None, :, None] & near_w[None, :, None])
    return pairs.permute(0, 3, 4, 1, 2) if psa_type == 1 else pairs


def psamask_backward(grad_output: Tensor, grad_input: Tensor, psa_type: int, num_: int,
                     h_feature: int, w_feature: int, h_mask: int, w_mask: int, half_h_mask: int,
                     half_w_mask: int) -> None:
    """Writes the gradient of the weights: each is read at one pair at most."""
    weights = torch.zeros_like(grad_input, requires_grad=True)
    with torch.enable_grad():
        pairs = _spread(weights, psa_type, num_, h_feature, w_feature, h_mask, w_mask,
                        half_h_mask, half_w_mask)
    grad, = torch.autograd.grad(pairs, weights, grad_output.reshape(pairs.shape))
    grad_input.copy_(grad)
