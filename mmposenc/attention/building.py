"""What attention modules are built from: checks of their sizes, projections, and encodings."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter, init

from ..checkpoint.key_biases import join_biases, mask_of_keys
from ..functional.linear import linear
from ..functional.tracing import mark_as_formula

if TYPE_CHECKING:  # Imported only for annotations: the encodings themselves import this package.
    from ..encodings.base import RelativeConfig, RelativeEncoding


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

    @property
    def trained_bias(self) -> Tensor:
        """``bias``, whose part for the keys is a constant."""
        query, key, value = self.bias.chunk(3)
        return torch.cat((query, key.detach(), value))

    def forward(self, x: Tensor) -> Tensor:
        """Compute queries, keys and values side by side: (..., C) -> (..., 3 C)."""
        return linear(x, self.weight, self.trained_bias)

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


def qkv_projection(embed_dims: int, qkv_bias: bool | str) -> Linear:
    """Build the joint projection to queries, keys and values; 'qv' means without a bias of the
    keys."""
    if qkv_bias not in (True, False, 'qv'):
        raise ValueError(f"qkv_bias={qkv_bias!r} must be True, False or 'qv'")
    return (QVLinear(embed_dims) if qkv_bias == 'qv' else
            Linear(embed_dims, 3 * embed_dims, bias=bool(qkv_bias)))


def build_relative_encoding(cfg: RelativeConfig | None, head_dims: int, num_heads: int,
                            num_prefix_tokens: int, **defaults: Any) -> RelativeEncoding | None:
    """Build an encoding for an attention module; None stays None.

    Args:
        cfg: a config, a class, an encoding, or a list of these, which becomes their sum.
        head_dims, num_heads, num_prefix_tokens: those of the attention.
        defaults: further arguments, which are added to the config if the encoding has them.

    Raises:
        ValueError: a bad config, or an encoding for other numbers of heads or prefix tokens.
    """
    from ..encodings.base import RelativeEncoding
    from ..encodings.build import build_encoding

    if cfg is None:
        return None
    # For mypy: RelativeEncoding is abstract, but is only compared here.
    return build_encoding(
        cfg, RelativeEncoding, 'rel_pos_encoding',  # type: ignore[type-abstract]
        head_dims=head_dims, num_heads=num_heads, num_prefix_tokens=num_prefix_tokens, **defaults)
