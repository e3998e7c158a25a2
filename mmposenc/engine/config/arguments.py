"""Classes and arguments of a model that there are not, found before anything is built."""
from __future__ import annotations

from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS as ROOT

from mmposenc.class_index import CLASSES
from mmposenc.registry import MODELS
from mmposenc.signatures import accepted_arguments
from mmposenc.terminal.messages import suggest
from mmposenc.user_classes import is_file_class

from .nodes import numbered

#: Sections of encodings, which a config need not have: where there is none, the first option makes
#: it, and the class that it is an argument of refuses it if it takes none.
ENCODINGS = ('pos_encoding', 'rel_pos_encoding', 'encoder_pos', 'key_pos')
#: Arguments that only classes of this project have.
_OURS = (*ENCODINGS, 'rel_pos_sharing', 'positions', 'mask_padding')


def model_class(name: Any, scope: str | None) -> Any:
    """The class that ``type=name`` means in a model of a library, or None. Encodings need no
    ``mmposenc.`` in front of their name."""
    if not isinstance(name, str) or is_file_class(name):
        return MODELS.get(name) if isinstance(name, str) else name
    with ROOT.switch_scope_and_registry(scope) as local:
        found = local.get(name)
    return MODELS.module_dict.get(name) if found is None and name not in CLASSES['model'] else found


def check_arguments(cfg: Config) -> None:
    """Checks that the classes of this project that a model names are there and take the arguments
    that they are given, and that classes of other libraries are given none of this project's.

    Raises:
        ValueError: names the key of the config, the class, and what to write.
    """
    _check('model', cfg.get('model'), 'model', None, cfg.get('default_scope'))


def _check(key: str, node: Any, owner_key: str, owner: Any, scope: str | None) -> None:
    """Checks a part of a model; ``owner`` is the class whose argument it is."""
    if isinstance(node, (list, tuple)):
        for name, each in numbered(key, node):
            _check(name, each, owner_key, owner, scope)
    if not isinstance(node, dict):
        return
    accepted: set[str] = set()  # of a dict without a type, which classes hand on
    if 'type' in node:
        owner_key, owner = key, model_class(node['type'], scope)
        accepted = {*node} if owner is None else accepted_arguments(owner) or set()
        if owner is None:
            _check_name(key, node['type'])
    library = getattr(owner, '__module__', '').partition('.')[0]
    for name, value in node.items():
        if name in accepted or name in ('type', '_scope_', 'zero_init'):
            pass
        elif library == 'mmposenc' and accepted:
            raise ValueError(f'{key}: {owner.__name__} has no argument {name!r}'
                             f'{suggest(name, accepted)}')
        elif name in _OURS and library.startswith('mm') and library != 'mmposenc':
            raise ValueError(f'{key}.{name}: {library}.{owner.__name__} has no such argument; '
                             f'{_instead(owner.__name__, owner_key, name, key)}')
        _check(f'{key}.{name}', value, owner_key, owner, scope)


def _check_name(key: str, name: Any) -> None:
    bare = str(name).removeprefix('mmposenc.')
    if bare != name or bare in CLASSES['model']:
        right = f"; write 'mmposenc.{bare}'" if bare in CLASSES['model'] else suggest(
            bare, [*CLASSES['model'], *MODELS.module_dict])
        raise ValueError(f'{key}.type={name!r}: there is no such class{right}')


def _instead(name: str, owner_key: str, argument: str, key: str) -> str:
    """What takes an argument that a class of another library does not, to end a sentence."""
    def takes(each: str) -> bool:
        return argument in (accepted_arguments(MODELS.get(each)) or ())

    if name in CLASSES['model'] and (key != owner_key or takes(name)):
        return (f"write {owner_key}.type='mmposenc.{name}', which takes it beside the same "
                'arguments')
    ours = [each for each, module in CLASSES['model'].items()
            if module.startswith('backbones.') and takes(each)]
    return f'{", ".join(ours)} of mmposenc take it{suggest(name, ours)}'
