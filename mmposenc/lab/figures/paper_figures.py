"""The figures of the papers by name."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from .attention_figures import draw_attention, draw_matrix, draw_references
from .bucket_figures import draw_buckets, draw_index_function
from .cost_figures import draw_cost
from .offset_figures import draw_bias, draw_rotary
from .photo_figures import draw_overlay, draw_rollout
from .pool_figures import draw_pools, draw_sizes
from .subjects import Choice, Drawing, Subject
from .token_figures import draw_added, draw_kernels, draw_similarity

#: Each draws the subjects that it is given, most of them the first alone.
FIGURES: dict[str, Callable[[Sequence[Subject], Choice], Drawing]] = {
    'matrix': draw_matrix,
    'attention': draw_attention,
    'kernels': draw_kernels,
    'index': draw_index_function,
    'buckets': draw_buckets,
    'references': draw_references,
    'similarity': draw_similarity,
    'cost': draw_cost,
    'sizes': draw_sizes,
    'bias': draw_bias,
    'rotary': draw_rotary,
    'added': draw_added,
    'pools': draw_pools,
    'overlay': draw_overlay,
    'rollout': draw_rollout,
}
#: Those that compare models.
COMPARING = ('matrix',)


def draw_figure(name: str, subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """Draw one figure of :data:`FIGURES`.

    Raises:
        ValueError: for an unknown name, several subjects where the figure shows one, or what the
            figure itself refuses.
    """
    if name not in FIGURES:
        raise ValueError(f'figure={name!r} must be one of {", ".join(FIGURES)}')
    if len(subjects) > 1 and name not in COMPARING:
        raise ValueError(f'figure={name!r} shows one model, but {len(subjects)} were given; '
                         f'{", ".join(COMPARING)} compares several')
    return FIGURES[name](subjects, choice)


__all__ = ['COMPARING', 'FIGURES', 'Choice', 'Drawing', 'Subject', 'draw_figure']
