"""Finds classes of a model that take none of this project's arguments, before anything is built."""
from __future__ import annotations

from mmposenc.class_index import CLASSES
from mmposenc.config_types import ReadOnlyConfig
from mmposenc.registry import MODELS
from mmposenc.signatures import accepted_arguments
from mmposenc.terminal.messages import suggestion_text

from .nodes import keys_and_values
from .parsed import ParsedConfig, model_class, own_backbones

#: Arguments that hold encodings, which a config need not have. Where there is none, an option
#: creates it, and the class that gets it refuses it if it takes none.
ENCODINGS = ('pos_encoding', 'rel_pos_encoding', 'encoder_pos', 'key_pos')
#: Arguments that only classes of this project take.
_OURS = (*ENCODINGS, 'rel_pos_sharing', 'positions', 'mask_padding')


def check_arguments(parsed: ParsedConfig) -> None:
    """Check that a model's classes of other libraries get no argument of this project's, and that
    names of this project's classes begin with ``mmposenc.``. What is misspelt, building it refuses.

    Raises:
        ValueError: names the key of the config, the class, and what to write.
    """
    _check_node('model', parsed.model, 'model', None, parsed.scope)
    _check_weights_of_other_backbone(parsed)
    _check_sliding_windows(parsed.model.get('test_cfg') or {})


def _check_weights_of_other_backbone(parsed: ParsedConfig) -> None:
    """Check ``model.pretrained``, which mmseg's base configs of a ResNet set and mmseg hands to the
    backbone as an argument."""
    weights = parsed.model.get('pretrained')
    if weights is None or parsed.scope != 'mmseg':
        return
    cls = model_class(parsed.backbone.get('type'), 'mmseg')
    if cls is not None and 'pretrained' not in (accepted_arguments(cls) or {'pretrained'}):
        raise ValueError(f'model.pretrained={weights!r} must be None: these are weights of another '
                         f'backbone; name those of {cls.__name__} in model.backbone.init_cfg='
                         "dict(type='Pretrained', checkpoint=...)")


def _check_sliding_windows(test_cfg: ReadOnlyConfig) -> None:
    """Check the numbers of mmseg's sliding windows, which it reads at the first test image."""
    if test_cfg.get('mode') != 'slide':
        return
    sizes = {name: test_cfg.get(name) for name in ('crop_size', 'stride')}
    pairs = all(isinstance(size, (list, tuple)) and len(size) == 2 for size in sizes.values())
    if not pairs or not all(0 < step <= side for side, step in zip(*sizes.values(), strict=True)):
        raise ValueError(f'model.test_cfg: mode=slide with crop_size={sizes["crop_size"]} and '
                         f'stride={sizes["stride"]}; both must be (height, width) in pixels, and '
                         'the stride at most the crop_size')


def _check_node(key: str, node: object, owner_key: str, owner: type | None,
                scope: str | None) -> None:
    """Check one part of a model; ``owner`` is the class whose argument it is."""
    accepted: set[str] = set()  # The part is a list, or a dict without a type that classes hand on.
    if isinstance(node, dict) and 'type' in node:
        owner_key, owner = key, model_class(node['type'], scope)
        if owner is None and node['type'] in CLASSES['model']:
            raise ValueError(f"{key}.type={node['type']!r}: there is no such class; write "
                             f"'mmposenc.{node['type']}'")
        if owner is None and str(node['type']).startswith('mmposenc.'):
            raise ValueError(f"{key}.type={node['type']!r}: there is no such class; "
                             f"{_counterpart(node['type'].partition('.')[2], scope)}")
        accepted = accepted_arguments(owner) or set()
    library = getattr(owner, '__module__', '').partition('.')[0]
    for name, value in keys_and_values(node):
        if (name in _OURS and name not in accepted and library.startswith('mm')
                and library != 'mmposenc'):
            raise ValueError(f'{key}.{name}: {library}.{owner.__name__} has no such argument; '
                             f'{_remedy_for_argument(owner.__name__, owner_key, name, key)}')
        _check_node(f'{key}.{name}', value, owner_key, owner, scope)


def _counterpart(name: str, scope: str | None) -> str:
    """The end of a message: what to write instead of a class that this project does not have."""
    for ours in ('ViT', 'PVT', 'Swin'):
        archs = [arch for arch in MODELS.get(ours).archs if arch.startswith(name.lower())]
        if archs:
            return f"write type='mmposenc.{ours}' with arch=, one of {', '.join(archs)}"
    if model_class(name, scope) is not None:
        return (f"type={name!r} is {scope}'s, without encodings; DeiT, PVT, Swin, ViT and others "
                'take them (docs/models.md)')
    return f"the classes are in docs/models.md{suggestion_text(name, CLASSES['model'])}"


def _remedy_for_argument(name: str, owner_key: str, argument: str, key: str) -> str:
    """The end of a message: what would take an argument that a class of another library does not
    take."""
    def takes(each: str) -> bool:
        return argument in (accepted_arguments(MODELS.get(each)) or ())

    if name in CLASSES['model'] and (key != owner_key or takes(name)):
        return (f"write {owner_key}.type='mmposenc.{name}', which takes it beside the same "
                'arguments')
    return f'{", ".join(own_backbones(argument))} of mmposenc take it'
