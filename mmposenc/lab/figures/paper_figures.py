"""The figures of the papers by name, what each shows, and which suit a model."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from mmposenc.encodings import PEG, CombinedRPE
from mmposenc.encodings.base import TokenEncoding

from .attention_figures import draw_attention, draw_bias, draw_matrix, draw_references, draw_rotary
from .irpe_figures import draw_buckets, draw_cost, draw_index_function
from .photo_figures import draw_overlay, draw_rollout
from .pool_figures import draw_pools, draw_sizes
from .recording import record_attention
from .subjects import Choice, Drawing, Subject
from .token_figures import draw_added, draw_kernels, draw_similarity, record_contributions


class Figure(NamedTuple):
    """How a figure is drawn; its title and what is seen, for captions and for those who do not see
    it."""

    draw: Callable[[Subject, Choice], Drawing]
    title: str
    seen: str


FIGURES = {
    'matrix': Figure(draw_matrix, 'Attention of all tokens',
        'The attention weight of every query (rows) for every key (columns) of one layer; beside '
        'it the same weights with the encodings left out, where they can be.'),
    'attention': Figure(draw_attention, 'Attention of reference cells',
        'The attention of evenly spread cells in one layer, a tile on the grid of the keys for '
        'each of them.'),
    'kernels': Figure(draw_kernels, 'Kernels of the PEG',
        'The weights of the convolution, one small square a channel, in colours in both '
        'directions from 0.'),
    'index': Figure(draw_index_function, 'Index function',
        "iRPE's piecewise index by the offset of two cells, beside the clipped one."),
    'buckets': Figure(draw_buckets, 'Buckets',
        'The bucket of every key for a query (star), for the four methods of iRPE; buckets that '
        'touch differ in colour.'),
    'references': Figure(draw_references, 'Added to the logits of reference cells',
        'What the encoding adds to the logits of evenly spread cells, a tile on the grid of the '
        'keys for each of them.'),
    'similarity': Figure(draw_similarity, 'Similarity of positions',
        'The cosine similarity between what the encoding gives one cell and all others, a tile '
        'for each of evenly spread cells.'),
    'cost': Figure(draw_cost, 'Cost',
        'Multiply-accumulates that iRPE adds, by the size of the image.'),
    'sizes': Figure(draw_sizes, 'Sizes by layer',
        'Quartiles and ends of the sizes that each ContextPool predicts.'),
    'bias': Figure(draw_bias, 'Added to the logits by offset',
        'What is added to the logit of a key, by its offset from the query (star), a map a head, '
        "less the head's mean, which a softmax over cells does not see."),
    'rotary': Figure(draw_rotary, 'Rotary similarity by offset',
        'What turning leaves of the product of a query with a key like it, by the offset of the '
        'key from the query (star): the mean over planes of the cosine of the angle between them.'),
    'added': Figure(draw_added, 'Added to the tokens',
        'What the encoding adds to the tokens of the photo: its norm over channels on the photo, '
        'and the channels that vary most from cell to cell.'),
    'pools': Figure(draw_pools, 'What ContextPool predicts',
        'The weight of each token, and the size that it pools over, on the photo, layer by layer.'),
    'overlay': Figure(draw_overlay, 'Attention on the photo',
        'The attention weights of one layer on the photo, for each point (star, its cell framed) '
        'and the first prefix token, where there is one. In windows the one that holds the point '
        'is outlined.'),
    'rollout': Figure(draw_rollout, 'Attention rollout on the photo',
        'The share of each cell of the input in the output: attention of all layers multiplied, '
        'with half of each layer passing it by (Abnar and Zuidema, 2020), for the first prefix '
        'token, or the mean of all cells, and for each point.'),
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
    return FIGURES[name].draw(subjects[0], replace(choice, against=subjects[1:]))


__all__ = ['COMPARING', 'FIGURES', 'Choice', 'Drawing', 'Subject', 'draw_figure']


_BY_OFFSET = ('bias', 'references')
#: By class of an encoding, the figures that show it, the one that says most first. A sum's are
#: those of its parts; those of others, such as a user's own, are below.
SUITS: dict[str, tuple[str, ...]] = {
    'ContextPool': ('pools', 'sizes', 'added', 'similarity'),
    'IRPE': ('buckets', 'bias', 'references', 'index'),
    'QueryAbsolute1D': ('references', 'bias'),
    **dict.fromkeys(('PEG', 'ConvMLP'), ('kernels', 'added', 'similarity')),
    **dict.fromkeys(('LearnedPositionEmbedding', 'FactorizedPositionEmbedding',
                     'WindowedPositionEmbedding', 'SinCosPositionEncoding'),
                    ('similarity', 'added')),
    **dict.fromkeys(('RelativePositionBias', 'LogSpacedCPB', 'UndirectedPositionBias',
                     'DynamicPositionBias'), ('bias',)),
    **dict.fromkeys(('RotaryEmbedding', 'RotaryEmbedding2D', 'LieRE', 'ComRoPE', 'GTA'),
                    ('rotary',)),
    **dict.fromkeys(('LePE', 'CRPE'), ()),
}
OTHER_TOKENS, OTHER_RELATIVE = ('added', 'similarity'), _BY_OFFSET
#: Of attention, with any encoding or none.
OF_ATTENTION = ('overlay', 'rollout', 'matrix')


class Suiting(NamedTuple):
    """A figure that suits a model.

    figure: its name. block: the number that it takes. name: of the module. encoding: its class, of
    what a sum adds to the logits those of its parts; '' for attention.
    """

    figure: str
    block: int
    name: str
    encoding: str


def suiting(subject: Subject) -> list[Suiting]:
    """The figures that suit a model: for every class of encoding in it those of :data:`SUITS`, of
    the first module and the last that runs, and those of attention, of the last layer.

    A figure may still refuse what options leave of an encoding
    (:class:`.subjects.NothingToShow`).
    """
    with record_contributions(subject.model) as tokens, record_attention(subject.model) as layers:
        subject.run_once()
    modules = dict(subject.model.named_modules())
    places = _by_kind([([type(modules[each.name]).__name__], each.name) for each in tokens])
    kernels = _by_kind([([type(module).__name__], name) for name, module in modules.items()
                        if isinstance(module, PEG)])
    relative = _by_kind([(_kinds(modules[each.name].rel_pos_encoding), each.name)
                         for each in layers])
    found = []
    for kind in dict.fromkeys([*places, *kernels]):
        for figure in SUITS.get(kind, OTHER_TOKENS):
            own = (kernels if figure == 'kernels' else places).get(kind, [])
            # These show all layers at once.
            own = own[:1] if figure in ('pools', 'sizes') else own
            found += [Suiting(figure, *each, kind) for each in _ends(own)]
    for kind, own in relative.items():
        for figure in SUITS.get(kind, OTHER_RELATIVE):
            # Buckets are learned by no layer, and a map by offset is enough of later ones.
            some = _ends(own) if figure in ('bias', 'rotary') else own[:1]
            # What is added to the logits is that of all parts of a sum.
            found += [Suiting(figure, place, name, ' + '.join(_kinds(
                modules[name].rel_pos_encoding)) if figure in _BY_OFFSET else kind)
                for place, name in some]
    if layers:
        last = len(layers) - 1, layers[-1].name
        found += [Suiting(figure, *last, '') for figure in OF_ATTENTION]
    once: dict[tuple[str, int], Suiting] = {}
    for each in found:
        once.setdefault(each[:2], each)
    return list(once.values())


def _by_kind(named: list[tuple[list[str], str]]) -> dict[str, list[tuple[int, str]]]:
    """Places and names of modules by the classes of their encodings."""
    found: dict[str, list[tuple[int, str]]] = {}
    for place, (kinds, name) in enumerate(named):
        for kind in kinds:
            found.setdefault(kind, []).append((place, name))
    return found


def _ends(own: list[tuple[int, str]]) -> list[tuple[int, str]]:
    return own if len(own) < 2 else [own[0], own[-1]]


def _kinds(encoding: nn.Module | None) -> list[str]:
    """Classes of an encoding, of a sum those of its parts."""
    if encoding is None:
        return []
    if isinstance(encoding, CombinedRPE):
        return [kind for each in encoding.encodings for kind in _kinds(each)]
    return [type(encoding).__name__]


def encodings_of(model: nn.Module) -> list[str]:
    """Classes of the encodings inside a model, for captions."""
    found: dict[str, None] = {}
    for module in model.modules():
        if isinstance(module, TokenEncoding):
            found[type(module).__name__] = None
        found.update(dict.fromkeys(_kinds(getattr(module, 'rel_pos_encoding', None))))
    return list(found)
