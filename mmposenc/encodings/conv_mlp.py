"""A depthwise convolution between the two layers of an MLP, as in PVT v2 and SegFormer."""
from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .peg import PEG


class ConvMLP(PEG):
    """fc2(act(conv(fc1(x)))): a depthwise convolution of the hidden layer of every MLP, the only
    position encoding of PVT v2 (Wang et al., CVM 2022, Sec. 3.3) and SegFormer (Xie et al., NeurIPS
    2021, Eq. 3).

    The zero padding at the image border carries the position; batch padding has no effect, as in
    :class:`PEG`. Prefix tokens skip the convolution, as in CeiT (Yuan et al., ICCV 2021, Sec. 3.2).

    Args:
        embed_dims: channels of the hidden layer, set by the backbone; k * k + 1 parameters each.
        kernel_size: odd k, in tokens.
        relu: ReLU before the convolution (PVT v2-Linear).
        bias: give the convolution a bias.

    Raises:
        ValueError: for an even kernel.

    Differs from the releases only in the padding mask.
    """

    variants = {'conv-mlp': ('convolution in the MLP', {})}
    default_positions = 'mlp'
    residual = False

    def __init__(self, embed_dims: int, *, kernel_size: int = 3, relu: bool = False,
                 bias: bool = True) -> None:
        super().__init__(embed_dims, kernel_size=kernel_size, bias=bias)
        self.relu = relu

    def start_at_zero(self) -> None:
        """Set the convolution to the identity, so that the MLP is a plain one.

        Raises:
            ValueError: with ``relu``, after which no convolution is the identity.
        """
        if self.relu:
            raise ValueError('zero_init=True with relu=True: no kernel undoes a ReLU; use '
                             'relu=False')
        conv: Any = self.proj[0]
        nn.init.dirac_(conv.weight, groups=self.embed_dims)
        if conv.bias is not None:
            nn.init.zeros_(conv.bias)

    def _with_residual(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        return super()._with_residual(x.relu() if self.relu else x, padding_mask)
