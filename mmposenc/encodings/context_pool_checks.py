"""What the options of a ContextPool must be."""
from __future__ import annotations


def check_choices(**choices: tuple[object, tuple[object, ...]]) -> None:
    """Raise ValueError for a value that is none of those known; both by the argument's name."""
    for name, (value, known) in choices.items():
        if value not in known:
            raise ValueError(f'{name}={value!r} must be one of {known}')


def check_numbers(embed_dims: int, hidden_dims: int | None, nonlocal_dims: int | None,
                  ratio: float, window_size: int, num_random: int, truncate: float,
                  stride: int) -> None:
    """Raise ValueError for a number that no ContextPool can have."""
    if embed_dims < 1 or (hidden_dims is not None and hidden_dims < 1):
        raise ValueError(f'embed_dims={embed_dims} and hidden_dims={hidden_dims} must be at least '
                         f'1')
    if nonlocal_dims is not None and nonlocal_dims < 1:
        raise ValueError(f'nonlocal_dims={nonlocal_dims} must be at least 1')
    if not (ratio > 0 and truncate > 0):
        raise ValueError(f'ratio={ratio} and truncate={truncate} must be positive')
    if window_size < 1 or window_size % 2 == 0:
        raise ValueError(f'window_size={window_size} must be odd and positive')
    if num_random < 1:
        raise ValueError(f'num_random={num_random} must be at least 1')
    if stride < 1:
        raise ValueError(f'stride={stride} must be at least 1')


def check_pairs(stride: int, dims: int, causal: bool, weights: str, locality: str, size_norm: str
                ) -> None:
    """Raise ValueError for options that contradict each other."""
    if stride > 1 and dims == 1:
        raise ValueError(f'stride={stride} needs dims=2: a sequence of tokens keeps its length')
    if causal and dims != 1:
        raise ValueError(f'causal=True needs dims=1, not dims={dims}: a map has no order')
    if causal and size_norm == 'softmax':
        raise ValueError("causal=True with size_norm='softmax': a softmax over all tokens sees "
                         "what comes later; use size_norm='sigmoid'")
    if locality == 'random_sparse' and (causal or weights == 'nonlocal'):
        raise ValueError("locality='random_sparse' takes neither causal=True nor "
                         "weights='nonlocal'")
