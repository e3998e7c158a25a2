"""Where the position encodings of a built model sit, those of other libraries too.

``mmposenc inspect``, ``train`` and ``test`` print :func:`encoding_lines`; torch is enough for it.
"""
from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..encodings import CombinedRPE, PlacedEncodings
from ..encodings.base import RelativeEncoding, TokenEncoding

#: A pattern of class names of encodings of other libraries: SinePositionalEncoding,
#: ConditionalPositionEncoding, RotaryEmbeddingCat, RelPosBias; BoxRPB of a DETR's decoder.
_CLASSES = re.compile('^(?!.*(Attention|Block|Layer)).*(Posit|Pos(Enc|Conv|Emb)|RelPos|Rotary|'
                      'Ro[pP][eE]|BoxRPB|PEG)')
#: Patterns of the names that modules and tables (parameters, buffers) of encodings have in other
#: libraries.
_MODULES = re.compile(r'cpb_mlp|pos_block')
_TABLES = re.compile(r'pos_?emb|posit\w*_(emb|enc|bias)|rel_pos_|attention_biases$|'
                     r'(patch|pixel)_pos$')


@dataclass
class Kind:
    """One kind of position encoding in a model.

    Attributes:
        text: what and where: 'PEG after block 0 of stages 0 to 3'.
        noun: what there are several of: 'module' or 'table'.
        modules: the encodings, by name in the model; of a table the module that holds it.
        parameters: by name in the model.
        attentions: names of the attentions that a relative encoding acts in.
    """

    text: str
    noun: str = 'module'
    modules: dict[str, nn.Module] = field(default_factory=dict)
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    attentions: list[str] = field(default_factory=list)

    def add(self, name: str, module: nn.Module) -> None:
        """Count one more encoding of this kind, with all of its parameters."""
        self.modules[name] = module
        self.parameters.update((f'{name}.{key}', each) for key, each in module.named_parameters())

    @property
    def line(self) -> str:
        """Describe the kind in one line: where it is, how many there are, how many parameters they
        have."""
        where = f' in {counted(len(self.attentions), "attention")}' if self.attentions else ''
        total = sum({id(each): each.numel() for each in self.parameters.values()}.values())
        size = f': {counted(len(self.modules), self.noun)}, {counted(total, "parameter")}'
        return self.text.format(where=where) + (size if total else '')


def counted(number: int, noun: str) -> str:
    """A number with its noun: '1 module', '2,304 parameters'."""
    return f'{number:,} {noun}{"" if number == 1 else "s"}'


def encoding_lines(model: nn.Module) -> list[str]:
    """One line for each kind of position encoding in a model.

    Args:
        model: a backbone, or a model of mmdet, mmseg, mmpretrain or timm.

    Returns:
        Lines such as 'PEG after block 0 of stages 0 to 3: 4 modules, 2,304 parameters' and
        'RotaryEmbedding in 12 attentions', and then those of what they replaced, such as
        'rel_pos_encoding: RotaryEmbedding in place of RelativePositionBias'.
    """
    replaced = [line for module in model.modules()
                for line in getattr(module, 'replaced_encodings', {}).values() if line]
    return [kind.line for kind in encoding_kinds(model)] + replaced


def encoding_kinds(model: nn.Module) -> list[Kind]:
    """The kinds of position encodings in a model, see :func:`encoding_lines`."""
    kinds = [*_kinds_between_blocks(model), *_kinds_in_mlps(model), *_relative_kinds(model)]
    listed = [name for kind in kinds for name in kind.modules]
    return kinds + _kinds_of_other_libraries(model, listed)


def is_attention(module: nn.Module) -> bool:
    """Whether a module is an attention of this project, with or without a relative encoding."""
    return (hasattr(module, 'rel_pos_encoding')
            and 'need_weights' in inspect.signature(module.forward).parameters)


def _kinds_between_blocks(model: nn.Module) -> list[Kind]:
    """Find token encodings between blocks; those at the same blocks of several stages are one kind.
    """
    kinds: dict[tuple[str, ...], Kind] = {}
    stages: dict[tuple[str, ...], list[int]] = {}
    for name, placed in model.named_modules():
        if not isinstance(placed, PlacedEncodings):
            continue
        stage = re.search(r'\bstages\.(\d+)\.', name)
        block = 'layer' if re.search(r'pos_encodings\.\d+$', name) else 'block'
        positions: dict[str, list[int]] = {}
        of_kind: dict[str, list[tuple[str, nn.Module]]] = {}
        names = {module: key for key, module in placed.named_modules(prefix=name)}
        for position in range(-1, placed.num_blocks):
            for encoding in placed.encodings(position):
                kind = type(encoding).__name__
                positions.setdefault(kind, []).append(position)
                of_kind.setdefault(kind, []).append((names[encoding], encoding))
        for kind, encodings in of_kind.items():
            key = kind, _positions_text(positions[kind], block), _owner_text(name)
            kinds.setdefault(key, Kind(''))
            for each in encodings:
                kinds[key].add(*each)
            stages.setdefault(key, []).extend([] if stage is None else [int(stage[1])])
    for (kind, where, owner), described in kinds.items():
        numbers = stages[kind, where, owner]
        of_stages = f' of {_numbers_text("stage", numbers)}' if numbers else ''
        described.text = f'{kind} {where}{of_stages}{owner}'
    return list(kinds.values())


def _kinds_in_mlps(model: nn.Module) -> list[Kind]:
    """Find token encodings inside MLPs."""
    inside = {module for placed in model.modules() if isinstance(placed, PlacedEncodings)
              for module in placed.modules()}
    kinds: dict[tuple[str, str], Kind] = {}
    for name, module in model.named_modules():
        if isinstance(module, TokenEncoding) and module not in inside:
            key = type(module).__name__, _owner_text(name)
            kinds.setdefault(key, Kind('')).add(name, module)
    for (kind, owner), described in kinds.items():
        described.text = f'{kind} in {counted(len(described.modules), "MLP")}{owner}'
    return list(kinds.values())


def _relative_kinds(model: nn.Module) -> list[Kind]:
    """Find relative encodings, with the attentions in which they act."""
    names = {module: name for name, module in model.named_modules()}
    kinds: dict[tuple[str, str], Kind] = {}
    for name, module in model.named_modules():
        encoding = getattr(module, 'rel_pos_encoding', None)
        if isinstance(encoding, RelativeEncoding) and is_attention(module):
            key = relative_name(encoding), _owner_text(name)
            kind = kinds.setdefault(key, Kind(f'{key[0]}{{where}}{key[1]}'))
            kind.attentions.append(name)
            kind.add(names[encoding], encoding)
    return list(kinds.values())


def relative_name(encoding: nn.Module) -> str:
    """The class name of a relative encoding; for a sum all class names, 'RelativePositionBias +
    IRPE'."""
    parts: Iterable[Any] = [encoding]
    if isinstance(encoding, CombinedRPE):
        parts = encoding.encodings
    return ' + '.join(type(part).__name__ for part in parts)


def _kinds_of_other_libraries(model: nn.Module, listed: list[str]) -> list[Kind]:
    """Find encodings of other libraries, by the names of their classes and tables."""
    kinds: dict[tuple[str, ...], Kind] = {}
    done = list(listed)
    for name, module in model.named_modules():
        if any(f'{name}.'.startswith(f'{each}.') for each in done):
            continue
        attribute = name.rpartition('.')[2]
        if name and (_CLASSES.search(type(module).__name__) or _MODULES.fullmatch(attribute)):
            done.append(name)
            text = f'{_class_prefix_text(model, name)}{type(module).__name__} ({attribute})'
            kinds.setdefault(('', text), Kind(text)).add(name, module)
            continue
        for key, table in _named_tables(module):
            several = f'{{where}} {type(module).__name__}' if '.' in name else ''
            text = f'{_class_prefix_text(model, name)}{key}{several}'
            kind = kinds.setdefault((key, text), Kind(text, 'table'))
            kind.modules[f'{name}.{key}'] = module
            if isinstance(table, nn.Parameter):
                kind.parameters[f'{name}.{key}'] = table
    for (key, _), kind in kinds.items():
        if key:
            kind.text = kind.text.replace('{where}', f' in {len(kind.modules)}')
    return list(kinds.values())


def _named_tables(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for key, table in (*module.named_parameters(recurse=False),
                       *module.named_buffers(recurse=False)):
        if _TABLES.search(key) and table.is_floating_point():
            yield key, table


def _class_prefix_text(model: nn.Module, name: str) -> str:
    """The text "SwinTransformer's own ", with the class of the part of a model that holds a module.
    """
    part = model.get_submodule(name.partition('.')[0])
    return '' if part is model.get_submodule(name) and _CLASSES.search(
        type(part).__name__) else f"{type(part).__name__}'s own "


def _owner_text(name: str) -> str:
    """The text ' of the encoder' for a part of a model other than its backbone, otherwise ''."""
    path = re.sub(r'\.?\b(stages|blocks|layers|pos_encodings)\..*$|\.?\bpos_encodings$', '', name)
    path = re.sub(r'^(module\.)?backbone\b\.?', '', path)
    # Nothing else is left of the name of an attention or encoding that is the model itself.
    return f' of the {path}' if path not in ('', 'attn', 'w_msa', 'rel_pos_encoding') else ''


def _positions_text(positions: list[int], block: str) -> str:
    """Describe positions between blocks: 'before block 0', 'after blocks 0 to 2', or both."""
    after = sorted({position for position in positions if position >= 0})
    parts = [f'before {block} 0'] if -1 in positions else []
    return ' and '.join(parts + ([f'after {_numbers_text(block, after)}'] if after else []))


def _numbers_text(noun: str, numbers: list[int]) -> str:
    """Describe a set of numbers: 'block 0', 'stages 0 to 3', 'blocks 2, 5, 8'."""
    some = sorted(set(numbers))
    if len(some) == 1:
        return f'{noun} {some[0]}'
    if len(some) > 2 and some == list(range(some[0], some[-1] + 1)):
        return f'{noun}s {some[0]} to {some[-1]}'
    return f'{noun}s {", ".join(map(str, some))}'
