"""Terms as score_mods of FlexAttention: look-ups are read inside its kernel."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .terms import Term

#: Queries and keys of a block that FlexAttention skips or computes as a whole, its default.
BLOCK = 128
#: Queries (M) and keys (N) at a time for 16 to 128 channels. With torch's blocks kernels for sm_90
#: spilled up to 3648 bytes a thread forward (bfloat16, 32 channels: iRPE on keys with a class token
#: and padding) and 1772 backward (Huang there), 41,232 in float32 (iRPE on keys, 64 channels).
#: Chosen by what spills alone: no kernel was run on a GPU.
HALF = dict(fwd_BLOCK_M=64, fwd_BLOCK_N=32,
            bwd_BLOCK_M1=32, bwd_BLOCK_N1=64, bwd_BLOCK_M2=64, bwd_BLOCK_N2=32)
FLOAT32 = dict(fwd_BLOCK_M=32, fwd_BLOCK_N=32)
#: What its kernels for a GPU take (torch 2.13): products have at least so many channels, sums are
#: in float32, and a look-up is read by 32-bit indices, whatever its size.
LEAST_CHANNELS, DTYPES, MOST_NUMBERS = (
    16, (torch.float16, torch.bfloat16, torch.float32), 2 ** 31 - 1)


def flex_attention(q: Tensor, k: Tensor, v: Tensor, terms: Sequence[Term],
                   key_padding: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """softmax(q k^T * scale + terms) v.

    Args:
        q: (B, heads, Lq, head_dims), not scaled; k, v: (B, heads, Lk, head_dims).
        terms: those with a score_mod.
        key_padding: (B, Lk) bool, True = padding: blocks of padded keys are skipped.
        scale: of the queries.

    Returns:
        (B, heads, Lq, head_dims). On a CPU not compiled, to be compared with: it builds all pairs.

    Raises:
        torch._dynamo.exc.FailOnRecompileLimitHit: where it was compiled for one kind of call so
            often that torch would run it uncompiled.
    """
    mods = [term.score_mod(q, k, scale) for term in terms]

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for mod in mods:
            score = score + mod(b, h, i, j)
        return score

    mask = None if key_padding is None else padding_blocks(key_padding, q.shape[2])
    if q.device.type == 'cpu':
        run = _eager()
    else:
        kinds = tuple(type(term).__name__ for term in terms)
        run = compiled((kinds, q.dtype, q.shape[3], mask is None, torch.is_grad_enabled()))
    out: Tensor = run(q, k, v, score_mod=score_mod, block_mask=mask, scale=scale,
                      kernel_options=blocks_of_pairs(q))
    return out


def blocks_of_pairs(q: Tensor) -> dict[str, int] | None:
    """Queries and keys that a block of the kernels takes at a time; None for torch's choice.

    torch 2.13's leave look-ups no registers (benchmarks/flex_sm90.py). Backward, its blocks of
    float32 are small as they are.
    """
    if q.shape[3] > 128:
        return None
    return FLOAT32 if q.dtype == torch.float32 else HALF


def refusal(q: Tensor, k: Tensor, terms: Sequence[Term]) -> str | None:
    """Why the kernels for a GPU can't compute it, found before they are compiled; None: they can.

    Args:
        q: (B, heads, Lq, head_dims); k: (B, heads, Lk, head_dims).
        terms: those with a score_mod.
    """
    if q.shape[3] < LEAST_CHANNELS:
        return f'head_dims={q.shape[3]} is below {LEAST_CHANNELS}'
    if q.dtype not in DTYPES:
        return f'dtype={q.dtype} is none of {", ".join(map(str, DTYPES))}'
    numbers = max((term.look_ups(q, k) for term in terms), default=0)
    if numbers > MOST_NUMBERS:
        return f'a look-up would have {numbers} numbers, more than {MOST_NUMBERS}'
    return None


def padding_blocks(key_padding: Tensor, len_q: int) -> Any:
    """The BlockMask of padded keys, the same for all queries and heads.

    Args:
        key_padding: (B, Lk) bool, True = padding.
        len_q: queries.

    Differs from ``create_block_mask``: blocks are told by their keys, without a mask of all pairs.
    """
    from torch.nn.attention.flex_attention import BlockMask
    valid = ~key_padding
    blocks = F.pad(valid, (0, -valid.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))  # type: ignore[no-untyped-call]
    # Blocks that reach beyond the last query are never whole.
    first = torch.arange(0, len_q, BLOCK, device=valid.device)[:, None]
    whole = blocks.all(2)[:, None, None] & (first + BLOCK <= len_q)  # (B, 1, rows, columns)
    ordered: list[Tensor] = []
    for each in (blocks.any(2)[:, None, None] & ~whole, whole):
        index = each.int().argsort(dim=3, descending=True, stable=True).int()
        ordered += [each.sum(3, dtype=torch.int32), index]
    some, which, wholly, which_wholly = ordered
    return BlockMask.from_kv_blocks(
        some, which, wholly, which_wholly, BLOCK_SIZE=BLOCK,
        mask_mod=lambda b, h, i, j: valid[b, j], seq_lengths=(len_q, valid.shape[1]))


@cache
def compiled(key: Hashable) -> Callable[..., Any]:
    """FlexAttention compiled for one kind of call: kinds do not use up each other's
    recompilations, after which torch would fall back to all pairs; with ``fullgraph`` it raises."""
    compiler: Any = torch.compile
    isolate = 'isolate_recompiles' in inspect.signature(compiler).parameters  # torch 2.13
    run: Callable[..., Any] = compiler(_eager(), dynamic=True, fullgraph=True,
                                       **(dict(isolate_recompiles=True) if isolate else {}))
    return run


def _eager() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention as flex
    return flex
