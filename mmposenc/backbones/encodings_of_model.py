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
from ..terminal.messages import counted

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
    kinds = [*_token_kinds(model), *_relative_kinds(model)]
    listed = [name for kind in kinds for name in kind.modules]
    return kinds + _kinds_of_other_libraries(model, listed)


def is_attention(module: nn.Module) -> bool:
    """Whether a module is an attention of this project, with or without a relative encoding."""
    return (hasattr(module, 'rel_pos_encoding')
            and 'need_weights' in inspect.signature(module.forward).parameters)


def _token_kinds(model: nn.Module) -> list[Kind]:
    """Find token encodings, first those between blocks, then those inside MLPs. Those at the same
    blocks of several stages are one kind."""
    kinds: dict[tuple[str, str, str], Kind] = {}
    stages: dict[tuple[str, str, str], list[int]] = {}
    between: set[nn.Module] = set()
    for name, placed in model.named_modules():
        if not isinstance(placed, PlacedEncodings):
            continue
        between.update(placed.modules())
        encodings: dict[str, dict[str, nn.Module]] = {}
        for position, modules in placed.at.named_children():
            for index, module in modules.named_children():
                encodings.setdefault(type(module).__name__, {})[
                    f'{name}.at.{position}.{index}'] = module
        stage = re.search(r'\bstages\.(\d+)\.', name)
        block = 'layer' if re.search(r'pos_encodings\.\d+$', name) else 'block'
        for class_name, by_path in encodings.items():
            key = class_name, _positions_text(by_path, block), _owner_text(name)
            kind = kinds.setdefault(key, Kind(' '.join(key[:2])))
            stages.setdefault(key, []).extend([] if stage is None else [int(stage[1])])
            for path, module in by_path.items():
                kind.add(path, module)
    for key, numbers in stages.items():
        kinds[key].text += (f' of {_numbers_text("stage", numbers)}' if numbers else '') + key[2]
    inside: dict[tuple[str, str, bool], Kind] = {}
    for name, module in model.named_modules():
        if isinstance(module, TokenEncoding) and module not in between:
            key_of_inside = type(module).__name__, _owner_text(name), '_pos_encodings' in name
            inside.setdefault(key_of_inside, Kind('')).add(name, module)
    for (class_name, owner, of_queries), kind in inside.items():
        where = ('added to queries or keys' if of_queries
                 else f'in {counted(len(kind.modules), "MLP")}')
        kind.text = f'{class_name} {where}{owner}'
    return [*kinds.values(), *inside.values()]


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
    inner = r'\.?\b(stages|blocks|layers|\w*pos_encodings)\..*$|\.?\bpos_encodings$'
    path = re.sub(inner, '', name)
    path = re.sub(r'^(module\.)?backbone\b\.?', '', path)
    # Nothing else is left of the name of an attention or encoding that is the model itself.
    return f' of the {path}' if path not in ('', 'attn', 'w_msa', 'rel_pos_encoding') else ''


def _positions_text(names: Iterable[str], block: str) -> str:
    """Describe positions between blocks by the names of the encodings there ('at.after0.0'):
    'before block 0', 'after blocks 0 to 2', or both."""
    after = [int(match[1]) for name in names if (match := re.search(r'\.after(\d+)\.\d+$', name))]
    parts = [f'before {block} 0'] if any('.at.before.' in name for name in names) else []
    return ' and '.join(parts + ([f'after {_numbers_text(block, after)}'] if after else []))


def _numbers_text(noun: str, numbers: list[int]) -> str:
    """Describe a set of numbers: 'block 0', 'stages 0 to 3', 'blocks 2, 5, 8'."""
    some = sorted(set(numbers))
    if len(some) == 1:
        return f'{noun} {some[0]}'
    if len(some) > 2 and some == list(range(some[0], some[-1] + 1)):
        return f'{noun}s {some[0]} to {some[-1]}'
    return f'{noun}s {", ".join(map(str, some))}'
