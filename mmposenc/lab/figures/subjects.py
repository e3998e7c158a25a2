"""What a figure is drawn of, which part of it, and what comes out."""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from mmposenc.encodings.base import RelativeEncoding

from .maps import Array
from .panels import Drawable, draw_panels
from .recording import AttentionRecord, record_attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar('T')
Module = TypeVar('Module', bound=nn.Module)


class NothingToShow(ValueError):
    """A model has nothing that a figure shows."""


@dataclass
class Subject:
    """A model that figures are drawn of.

    model: a backbone or a detector. run: one pass of it over an image. source: the model in words,
    for titles; it says 'untrained' of random weights. picture: (h, w, 3) from 0 to 1, the image as
    it was before it was resized; None is noise. size: (H, W) of what the model takes.
    """

    model: nn.Module
    run: Callable[[], object]
    source: str
    picture: Array | None = None
    size: tuple[int, int] | None = None

    @torch.no_grad()
    def run_once(self) -> None:
        """One pass in evaluation mode; the model's mode stays what it was."""
        was_training = self.model.training
        self.model.eval()
        try:
            self.run()
        finally:
            self.model.train(was_training)

    def recorded(self, record: Callable[..., AbstractContextManager[T]], *args: Any,
                 **options: Any) -> T:
        """What a context such as :func:`.record_attention` gathers of one pass."""
        with record(self.model, *args, **options) as found:
            self.run_once()
        return found

    def attention(self, block: int, at: tuple[float, float] = (0.5, 0.5)) -> AttentionRecord:
        """The record of attention layer ``block``, with the weights of all queries.

        Raises:
            ValueError: if there is no such layer.
        """
        records = self.recorded(record_attention, at, whole=block)
        return pick(records, block, [each.name for each in records], 'attention layers on a grid')

    def encoding(self, record: AttentionRecord) -> RelativeEncoding | None:
        """The relative encoding of a layer."""
        encoding = self.model.get_submodule(record.name).rel_pos_encoding
        assert encoding is None or isinstance(encoding, RelativeEncoding)
        return encoding

    def find_encoding(self, record: AttentionRecord, kind: type[Module] | tuple[type[Module], ...]
                      ) -> Module | None:
        """The encoding of a layer that is of a class or of several, also inside a sum."""
        encoding = self.encoding(record)
        modules = () if encoding is None else encoding.modules()
        return next((module for module in modules if isinstance(module, kind)), None)

    def drawing(self, panels: Sequence[Drawable], title: str, choice: Choice,
                arrays: dict[str, Array], *, where: str = '', **options: Any) -> Drawing:
        """Panels as a figure, with the model and ``where`` below its title."""
        figure = draw_panels(panels, title=f'{title}\n{self.source}{where}', width=choice.width,
                             **options)
        return Drawing(figure, arrays)


@dataclass
class Choice:
    """Which part of a model a figure shows.

    block: the number of a layer, or of an encoding, among those that the figure could show, in the
    order in which they run. head: a head, or None for their mean. places: queries as fractions of
    height and width; empty for each figure's usual ones. references: side of the square of
    reference cells; None for each figure's usual one. prefix: keep prefix tokens in a matrix, and
    show the attention of the first one on the photo. channels: those that are shown of what is
    added to tokens; empty for the ones that vary most. width: of the figure in inches; None for
    each figure's usual one. against: further models, in figures that compare.
    """

    block: int = 0
    head: int | None = None
    places: Sequence[tuple[float, float]] = ()
    references: int | None = None
    prefix: bool = True
    channels: Sequence[int] = ()
    width: float | None = None
    against: Sequence[Subject] = ()

    @property
    def place(self) -> tuple[float, float]:
        """The first of the places; the middle of the image where there is none."""
        return self.places[0] if self.places else (0.5, 0.5)


@dataclass
class Drawing:
    """A figure, and the numbers that it shows by name."""

    figure: Figure
    arrays: dict[str, Array] = field(default_factory=dict)


#: Encodings whose class is not their name, and names that are written as the class.
_NAMES = {'IRPE': 'iRPE', 'ContextPool': 'ContextPool', 'LookHere': 'LookHere',
          'SinCosPositionEncoding': 'sine-cosine encoding', 'CombinedRPE': 'a sum of encodings'}
#: Parts of a module's name, and what titles say.
_PLACES = ((r'\.?\b(attn|self_attn|w_msa)\b', ''), (r'\bpos_encodings\.at\.', ''),
           (r'\bbefore\.\d+', 'before the first block'), (r'\bafter(\d+)\.\d+', r'after block \1'),
           (r'\b(stage|block|layer)s\.(\d+)', r'\1 \2'), (r'\.', ', '))


def encoding_in_words(kind: str) -> str:
    """The class of an encoding as titles have it: 'RotaryEmbedding' is 'rotary embedding'."""
    kind = kind.removesuffix('2D')
    words = re.findall('[A-Z][a-z]+', kind)
    in_words = len(words) > 1 and ''.join(words) == kind
    return _NAMES.get(kind, ' '.join(words).lower() if in_words else kind)


def place_in_words(name: str) -> str:
    """The name of a module as titles have it: 'stages.0.blocks.1.attn' is 'stage 0, block 1'."""
    found = name
    for part, words in _PLACES:
        found = re.sub(part, words, found)
    return found or name


def pick(found: Sequence[T], block: int, names: Sequence[str], what: str) -> T:
    """The entry ``block`` of what a figure could show.

    Raises:
        NothingToShow: if there is none at all.
        ValueError: if there is no such one, with the list of those that are.
    """
    if not found:
        raise NothingToShow(f'the model has no {what}: this figure has nothing to show')
    if not 0 <= block < len(found):
        listed = ', '.join(f'{place} {name}' for place, name in enumerate(names))
        raise ValueError(f'block={block} must be from 0 to {len(found) - 1}, the {what} in the '
                         f'order they run: {listed}')
    return found[block]


def terms_of(record: AttentionRecord, block: int) -> Array:
    """What the encoding of layer ``block`` added to the logits, of all queries.

    Raises:
        NothingToShow: if it added nothing.
    """
    if record.all_terms is None:
        raise NothingToShow(f'block={block} ({record.name}) has no relative encoding that adds to '
                            f'the logits: this figure has nothing to show')
    return record.all_terms


def of_head(by_head: Array, head: int | None) -> Array:
    """One head of (heads, ...), or the mean over them.

    Raises:
        ValueError: for a head that is not there.
    """
    if head is None:
        mean: Array = by_head.mean(0)
        return mean
    if not 0 <= head < len(by_head):
        raise ValueError(f'head={head} must be from 0 to {len(by_head) - 1}, or left out for the '
                         f'mean')
    one: Array = by_head[head]
    return one


def head_text(by_head: Array, head: int | None) -> str:
    """What :func:`of_head` shows."""
    if head is not None:
        return f'head {head}'
    return 'all heads' if len(by_head) == 1 else f'mean of {len(by_head)} heads'


def head_names(by_head: Array) -> list[str]:
    """Of maps (heads, ...), one by one."""
    return ['all heads'] if len(by_head) == 1 else [f'head {n}' for n in range(len(by_head))]


def reference_cells(hw_shape: tuple[int, int], count: int) -> list[list[tuple[int, int]]]:
    """``count`` x ``count`` cells spread evenly over a grid, or all rows (columns) where it has no
    more.

    Raises:
        ValueError: for a count below 1.
    """
    if count < 1:
        raise ValueError(f'references={count} must be at least 1')
    rows, cols = ([int((place + 0.5) * side / number) for place in range(number)]
                  for side in hw_shape for number in (min(count, side),))
    return [[(row, col) for col in cols] for row in rows]
