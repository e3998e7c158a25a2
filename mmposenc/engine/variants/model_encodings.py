"""Reads the encodings of a model, and those of the models in papers' tables, in the form in which
they can be put into another model."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from mmposenc.backbones.base import Backbone
from mmposenc.catalog import papers
from mmposenc.checkpoint.encoding_names import SLOTS
from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.engine.config.config import load_config
from mmposenc.engine.config.models import build_backbone
from mmposenc.engine.config.nodes import listed, value_at
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.openmmlab.mmdet.detr.positions import NAMED
from mmposenc.signatures import parameters_of

#: The prefix of a name in ``--encodings`` that stands for a table or a row.
PREFIX = 'paper::'
#: Arguments of encodings that a model sets from its own sizes.
_FILLED_IN = {'embed_dims', 'head_dims', 'num_heads', 'grid_shape', 'num_prefix_embeds',
              'num_prefix_tokens', 'max_tokens'}


@dataclass(frozen=True)
class Changes:
    """The encodings of a model, or those that are put into one.

    Attributes:
        tokens, relative: configs of the encodings of both kinds; None leaves those of the model.
        positions: where token encodings stand, as a backbone takes it.
        sharing: which relative encodings are shared, as a backbone takes it.
        cfg: dotted keys of the config and their values, for all else.
        keep: whether the encodings are added to those of the model.
        alone: whether encodings with ``blocks`` leave none in other blocks.
    """

    tokens: list[ConfigType] | None = None
    relative: list[ConfigType] | None = None
    positions: str | list[int] | None = None
    sharing: str = 'layer'
    cfg: ConfigType = field(default_factory=dict)
    keep: bool = False
    alone: bool = False

    @classmethod
    def read(cls, fields: ReadOnlyConfig) -> Changes:
        """The changes that :meth:`fields` gives."""
        tokens, relative = (listed(fields[slot]) if slot in fields else None for slot in SLOTS)
        return cls(tokens, relative, fields.get('positions'),
                   fields.get('rel_pos_sharing', 'layer'), dict(fields.get('cfg') or {}),
                   bool(fields.get('keep')), bool(fields.get('alone')))

    def fields(self) -> ConfigType:
        """The same as plain values: the arguments of a backbone, ``cfg``, ``keep``, ``alone``."""
        return {'cfg': self.cfg, **self.arguments(),
                **{name: True for name in ('keep', 'alone') if getattr(self, name)}}

    def arguments(self) -> ConfigType:
        """The arguments that set them in a backbone."""
        tokens, relative = (each[0] if each and len(each) == 1 else each or None
                            for each in (self.tokens, self.relative))
        return {**({} if self.tokens is None else dict(
            pos_encoding=tokens, positions=self.positions)), **({} if self.relative is None else
            dict(rel_pos_encoding=relative, rel_pos_sharing=self.sharing))}


def encodings_for_any_size(parsed: ParsedConfig) -> Changes:
    """The encodings of a config's model, in a form that fits models of any size.

    Raises:
        ValueError: the model differs in something that is no encoding.
    """
    insertion = parsed.insertion
    for key, value in insertion.options.items():
        if key in getattr(insertion.cls, 'structure', ()):
            raise ValueError(f'{".".join(insertion.path)}.{key}={value!r} is no encoding')
    encodings = encodings_as_they_stand(parsed)
    return replace(encodings, tokens=[_without_sizes(each) for each in encodings.tokens or ()],
                   relative=[_without_sizes(each) for each in encodings.relative or ()])


def encodings_as_they_stand(parsed: ParsedConfig) -> Changes:
    """The encodings of a config's model as they stand in it: those that it names, defaults, and
    those of an ``arch``."""
    insertion = parsed.insertion
    if insertion.kind == 'encoder':
        return _encoder_encodings(parsed)
    options = {name: insertion.options.get(name, each.default)
               for name, each in parameters_of(insertion.cls).items()}
    if issubclass(insertion.cls, Backbone):
        built: Any = build_backbone(parsed.scope, {**insertion.options, 'type': insertion.type})
        options |= built.encoding_configs
    positions = options['positions']
    return Changes(listed(options['pos_encoding']), listed(options['rel_pos_encoding']),
                   list(positions) if isinstance(positions, tuple) else positions,
                   options['rel_pos_sharing'])


def _encoder_encodings(parsed: ParsedConfig) -> Changes:
    options = parsed.insertion.options
    absolute = options.get('encoder_pos', None if 'pos_encoding' in options else 'sine')
    if 'encoder_pos' in parsed.insertion.takes:  # A neck has it beside its encoder.
        owner = value_at(parsed.cfg, '.'.join(('model', *parsed.insertion.path[:-1])))
        absolute = owner.get('encoder_pos', 'sine')
    tokens, positions = listed(options.get('pos_encoding') or []), options.get('positions')
    if absolute is not None:
        # An entry has one list of positions for all its encodings, and here it must be the usual
        # one, the first layer.
        if positions is not None and list(positions) != [0]:
            raise ValueError(f'encoder.positions={positions} beside encoder_pos={absolute!r}: an '
                             'entry has one list of places')
        positions = None
        tokens.insert(0, NAMED[absolute] if isinstance(absolute, str) else absolute)
    key_pos = (parsed.cfg.model.get('decoder') or {}).get('key_pos', 'sine')
    return Changes(tokens, named_relative_encodings(options),
                   list(positions) if isinstance(positions, tuple) else positions,
                   options.get('rel_pos_sharing', 'layer'),
                   {'model.decoder.key_pos': key_pos} if key_pos != 'sine' else {})


def named_relative_encodings(options: ReadOnlyConfig) -> list[ConfigType]:
    """The relative encodings in the config of a backbone, or in that of an encoder or its layers.
    """
    return listed(options.get('rel_pos_encoding')
                  or value_at(options, 'layer_cfg.self_attn_cfg.rel_pos_encoding'))


def _without_sizes(encoding: ReadOnlyConfig) -> ConfigType:
    return {key: list(value) if isinstance(value, tuple) else value
            for key, value in encoding.items() if key not in _FILLED_IN}


@cache
def _encodings_or_reason(name: str) -> Changes | str:
    """The encodings of a model in the tables, or a text that says why an entry cannot express them.
    """
    try:
        return encodings_for_any_size(ParsedConfig(load_config(str(papers.config_of_model(name)))))
    except ValueError as error:
        return str(error).partition('. ')[0]


def rows_and_left_out(word: str) -> tuple[list[tuple[str, str, Changes]], dict[int, str]]:
    """The rows that a word names: 'paper::cpvt/table6' all of a table, 'paper::cpvt/table6/3' one.

    Returns:
        The name of each row as a word, its label, its encodings; and by their numbers why others
        are left out.

    Raises:
        ValueError: there is no such table or row.
    """
    table, wanted = word.removeprefix(PREFIX), None
    of_row, _, number_of_row = table.rpartition('/')
    if table not in papers.tables_by_id() and of_row in papers.tables_by_id():
        papers.row(table)  # It raises for a row that is not there.
        table, wanted = of_row, int(number_of_row)
    rows: list[tuple[str, str, Changes]] = []
    left_out: dict[int, str] = {}
    for number, row in enumerate(papers.table(table).rows, 1):
        if wanted not in (None, number):
            continue
        encodings = _encodings_or_reason(row.model) if row.model else f'{row.not_here}'
        if isinstance(encodings, str):
            left_out[number] = encodings
        else:
            rows.append((f'{PREFIX}{table}/{number}', f'{row.name} (row {number})', encodings))
    return rows, left_out


def left_out_lines(left_out: dict[int, str]) -> list[str]:
    """One line for each reason why rows were left out."""
    reasons: dict[str, list[str]] = {}
    for number, reason in sorted(left_out.items()):
        reasons.setdefault(reason, []).append(str(number))
    return [f'{"row" if len(numbers) == 1 else "rows"} {", ".join(numbers)} left out: {reason}'
            for reason, numbers in reasons.items()]
