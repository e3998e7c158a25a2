"""Which figures suit a model's encodings."""
from __future__ import annotations

from typing import NamedTuple

from torch import nn

from mmposenc.encodings import PEG, CombinedRPE
from mmposenc.encodings.base import TokenEncoding

from .contributions import record_contributions
from .recording import record_attention
from .subjects import Subject, run_once

_BY_OFFSET = ('bias', 'references')
#: By class of an encoding, the figures that show it, the one that says most first. A sum's are
#: those of its parts.
SUITS: dict[str, tuple[str, ...]] = {
    'PEG': ('kernels', 'added', 'similarity'),
    'LearnedPositionEmbedding': ('similarity', 'added'),
    'SinCosPositionEncoding': ('similarity', 'added'),
    'ContextPool': ('pools', 'sizes', 'added', 'similarity'),
    'IRPE': ('buckets', 'bias', 'references', 'index'),
    'ShawRPE': _BY_OFFSET,
    'TransformerXLRPE': _BY_OFFSET,
    'HuangRPE': _BY_OFFSET,
    'SASARPE': _BY_OFFSET,
    'RelativePositionBias': ('bias',),
    'LogSpacedCPB': ('bias',),
    'DecomposedRPE': _BY_OFFSET,
    'QueryAbsolute1D': ('references', 'bias'),
    'QueryRelative1D': _BY_OFFSET,
    'QueryRelative2D': _BY_OFFSET,
    'RotaryEmbedding': ('rotary',),
    'RotaryEmbedding2D': ('rotary',),
}
#: Of encodings that are not in the table, such as a user's own.
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
        run_once(subject)
    modules = dict(subject.model.named_modules())
    places: dict[str, list[tuple[int, str]]] = {}
    for place, token in enumerate(tokens):
        places.setdefault(type(modules[token.name]).__name__, []).append((place, token.name))
    kernels = [(place, name) for place, name in enumerate(
        name for name, module in modules.items() if isinstance(module, PEG))]
    found = []
    for kind in dict.fromkeys([*places, *(['PEG'] if kernels else [])]):
        for figure in SUITS.get(kind, OTHER_TOKENS):
            own = kernels if figure == 'kernels' else places.get(kind, [])
            # These show all layers at once.
            own = own[:1] if figure in ('pools', 'sizes') else own
            found += [Suiting(figure, *each, kind) for each in _ends(own)]
    relative: dict[str, list[tuple[int, str]]] = {}
    for place, layer in enumerate(layers):
        for kind in _kinds(modules[layer.name].rel_pos_encoding):
            relative.setdefault(kind, []).append((place, layer.name))
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
