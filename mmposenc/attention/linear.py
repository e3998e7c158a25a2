"""Linear layers, computed by the faster library of a CPU."""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module, Parameter, init

from ..checkpoint.key_biases import join_biases, mask_of_keys
from ..functional.linear import linear
from ..functional.plain_layers import are_plain, mark_as_formula
from ..functional.tracing import is_exporting


@mark_as_formula
class QVLinear(Linear):
    """A joint projection to queries, keys and values without a bias of keys (BEiT, EVA-02, DINOv3).

    Args:
        embed_dims: channels C.

    Parameters: ``weight`` (3 C, C) and ``bias`` (3 C,), whose part for the keys is zero and gets no
    gradient. The buffer ``bias_mask`` is zero there. Files that hold ``q_bias`` and ``v_bias``
    are loaded.
    """

    def __init__(self, embed_dims: int) -> None:
        super().__init__(embed_dims, 3 * embed_dims)

    def reset_parameters(self) -> None:
        """Initialise as ``nn.Linear`` does, with zeros for biases."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        init.zeros_(self.bias)
        self.register_buffer('bias_mask', mask_of_keys(self.bias.detach()[:self.in_features]))

    def trained_bias(self) -> Tensor:
        """``bias``, whose part for the keys is a constant."""
        query, key, value = self.bias.chunk(3)
        return torch.cat((query, key.detach(), value))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., 3 C)."""
        return linear(x, self.weight, self.trained_bias())

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        names = {f'{prefix}{each}': f'qkv.{each}' for each in ('q_bias', 'v_bias')}
        if names.keys() <= state_dict.keys():
            joined = join_biases({ours: state_dict.pop(name) for name, ours in names.items()})
            state_dict |= {f'{prefix}{name[4:]}': value for name, value in joined.items()}
        super()._load_from_state_dict(state_dict, prefix, *args)


def parameter_counts(model: Module) -> dict[Parameter, int]:
    """For each parameter of a model the number of its elements, without those of a joint bias that
    stay zero, which no release counts."""
    fixed = {each.bias: each.in_features for each in model.modules() if isinstance(each, QVLinear)}
    return {each: each.numel() - fixed.get(each, 0) for each in model.parameters()}


def check_heads(embed_dims: int, num_heads: int) -> None:
    """Raise ValueError if ``embed_dims`` is not a multiple of ``num_heads``."""
    if num_heads < 1 or embed_dims < 1 or embed_dims % num_heads:
        raise ValueError(f'embed_dims={embed_dims} must be a positive multiple of '
                         f'num_heads={num_heads}')


def check_x_qk(x: Tensor, x_qk: Tensor | None) -> None:
    """Raise ValueError if tokens for queries and keys have another shape than those for values."""
    if x_qk is not None and x_qk.shape != x.shape:
        raise ValueError(f'x_qk has shape {tuple(x_qk.shape)}; it must be that of x, '
                         f'{tuple(x.shape)}')


def qkv_projection(embed_dims: int, qkv_bias: bool | str) -> Linear:
    """Build the joint projection to queries, keys and values; 'qv' means without a bias of the
    keys."""
    if qkv_bias not in (True, False, 'qv'):
        raise ValueError(f"qkv_bias={qkv_bias!r} must be True, False or 'qv'")
    return (QVLinear(embed_dims) if qkv_bias == 'qv' else
            Linear(embed_dims, 3 * embed_dims, bias=bool(qkv_bias)))


def project(layer: Module, x: Tensor) -> Tensor:
    """``layer(x)``. A linear layer that is only its formula is computed by
    :func:`mmposenc.functional.linear.linear`: equal to rounding, in less time where oneDNN is the
    faster library."""
    if not isinstance(layer, Linear) or not are_plain(layer):
        return layer(x)
    return linear(x, layer.weight, _bias_of(layer))


def linear_of_channels(layer: Module, x: Tensor, channels: slice) -> Tensor:
    """Some of the output channels of a linear layer.

    Args:
        layer: a linear layer. One that is more than its formula
            (:func:`mmposenc.functional.plain_layers.are_plain`) is computed completely.
        x: (..., in_features).
        channels: the channels.

    Returns:
        (..., number of channels).
    """
    if not isinstance(layer, Linear) or not are_plain(layer):
        return layer(x)[..., channels]
    bias = _bias_of(layer)
    return F.linear(x, layer.weight[channels], None if bias is None else bias[channels])


def _bias_of(layer: Linear) -> Tensor | None:
    return layer.trained_bias() if isinstance(layer, QVLinear) else layer.bias


def split_heads(x: Tensor, num_heads: int, parts: int = 1) -> tuple[Tensor, ...]:
    """Split a joint tensor (B, L, parts * C) into ``parts`` tensors (B, heads, L, head_dims)."""
    joint: Tensor = x.unflatten(-1, (parts, num_heads, -1))
    # With unbind, the gradients of the parts are put together with one copy, in the order of x.
    return tuple(each.transpose(1, 2) for each in joint.unbind(2))


def join_heads(out: Tensor) -> Tensor:
    """(B, heads, L, head_dims) -> (B, L, heads * head_dims)."""
    out = out.transpose(1, 2)
    if is_exporting():
        # Made contiguous, because an exporter later replaces attention by operators whose output
        # has another memory layout.
        out = out.clone(memory_format=torch.contiguous_format)
    return out.flatten(2)
