"""FIRE: a learned function of the distance relative to the longest distance of the grid."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.grids import Grid
from ..functional.tracing import are_plain, full_precision, layer_dtype
from .checks import check_at_least, check_positive
from .offset_bias import OffsetBiasEncoding, euclidean_distances


class FIRE(OffsetBiasEncoding):
    """logit[i, j] += f(psi(d_ij) / psi(max(L, D)))[head] with psi(x) = log(abs(c x) + 1) and f an
    MLP of one hidden layer (Li et al., ICLR 2024, Sec. 3; c, L and f are learned).

    On a grid d_ij is the Euclidean distance of two cells and D the longest distance, so that the
    argument of f is in [0, 1] on grids of any size. In the paper D is the query position i, the
    number of keys that a causal query attends to; here each query attends to all keys. L has an
    effect, and a gradient, only on grids whose longest distance is below it.

    Args:
        num_heads: attention heads.
        hidden_dims: channels of the MLP.
        init_c: c at the start.
        init_length: L at the start, in cells of the query grid; the model learns a factor of it.
        num_prefix_tokens: tokens in front of the grid; see :class:`OffsetBiasEncoding`.

    Parameters: ``mlp``, ``c`` and ``length_factor`` (numbers), and ``prefix_bias``.

    Raises:
        ValueError: for sizes below 1, or ``init_c`` or ``init_length`` not above 0.
    """

    variants = {'fire': ('FIRE', {})}

    def __init__(self, num_heads: int, *, hidden_dims: int = 32, init_c: float = 0.1,
                 init_length: float = 8.0, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_heads(num_heads, num_prefix_tokens)
        check_at_least(1, hidden_dims=hidden_dims)
        check_positive(init_c=init_c, init_length=init_length)
        self.mlp = nn.Sequential(nn.Linear(1, hidden_dims), nn.ReLU(),
                                 nn.Linear(hidden_dims, num_heads))
        self.c = nn.Parameter(torch.empty(()))
        self.init_c, self.init_length = init_c, init_length
        self.length_factor = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the layers as PyTorch does, set c and L to the given values, and prefix biases to
        zero."""
        super().reset_parameters()
        nn.init.constant_(self.c, self.init_c)
        nn.init.ones_(self.length_factor)

    def start_at_zero(self) -> None:
        """Set the last layer of the MLP and the prefix biases to zero, so that nothing is added."""
        for name, parameter in self.named_parameters():
            if name.startswith(('mlp.2', 'prefix_bias')):
                nn.init.zeros_(parameter)

    def offset_table(self, row_offsets: Tensor, col_offsets: Tensor, q_grid: Grid) -> Tensor:
        """The function f of the distances; see :class:`OffsetBiasEncoding`."""
        distance = euclidean_distances(row_offsets, col_offsets)
        # Flattened, because ONNX requires an axis for a maximum.
        longest = distance.flatten().amax(0)
        extent = torch.maximum((self.length_factor * self.init_length).abs(), longest)
        fraction = self._log_distance(distance) / (self._log_distance(extent) + 1e-6)
        bias = fraction[..., None]
        with full_precision(bias):  # In bfloat16 several cells would be rounded to one fraction.
            if are_plain(self.mlp):
                for layer in self.mlp:
                    bias = (F.linear(bias, layer.weight.to(bias.dtype), layer.bias.to(bias.dtype))
                            if isinstance(layer, nn.Linear) else layer(bias))
            else:
                bias = self.mlp(bias.to(layer_dtype(self.mlp))).to(bias.dtype)
        return bias.permute(2, 0, 1)

    def _log_distance(self, distance: Tensor) -> Tensor:
        return (self.c * distance).abs().log1p()
