"""Sharing one relative encoding between the attention layers of several blocks."""
from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from .base import RelativeEncoding
from .lookhere import LookHere

SHARING = ('layer', 'stage', 'all')
_NAME = 'rel_pos_encoding'


def share_encodings(sharing: str, model: nn.Module, stages: Sequence[nn.Module]) -> None:
    """Keep one relative encoding for each attention layer, for each stage, or for the whole model
    (CPVT, ICLR 2023, Table 8, has one for the whole model).

    A shared encoding is a submodule ``rel_pos_encoding`` of the stage or the model, so that its
    parameters are saved once. Attention layers only refer to it. Copies of the model (deepcopy,
    EMA) share their own, and optimizers and ``init_weights`` find it once. With 'layer',
    :class:`LookHere` gets its depth.

    Args:
        sharing: 'layer' (nothing is shared), 'stage' or 'all'.
        model: owns the encoding with 'all', or if there is only one stage.
        stages: the stages of the model, which contain the attention layers.

    Raises:
        ValueError: for another ``sharing``; for 'all' if blocks need encodings of different sizes;
            for one module that is given to several blocks with 'layer' or 'stage'.
    """
    if sharing not in SHARING:
        raise ValueError(f'rel_pos_sharing={sharing!r} must be one of {SHARING}')
    if sharing == 'all' or (sharing == 'stage' and len(stages) == 1):
        _share_one(model, stages)
    elif sharing == 'stage':
        for stage in stages:
            _share_one(stage, [stage])
    else:
        parts = [part for stage in stages for part in stage.modules() if isinstance(part, LookHere)]
        for index, part in enumerate(parts):
            part.at_depth(index, len(parts))
    owned = [module._modules[_NAME] for module in model.modules() if _has_own_encoding(module)]
    if len(set(map(id, owned))) < len(owned):
        raise ValueError(f'rel_pos_encoding is a module and rel_pos_sharing={sharing!r}: it would '
                         f"be shared all the same; give a config dict, or rel_pos_sharing='all'")


def shared_encodings(model: nn.Module) -> list[RelativeEncoding]:
    """The shared encoding of a model or stage as a list of one, or an empty list."""
    return [model._modules[_NAME]] if _has_own_encoding(model) else []  # type: ignore[list-item]


def _share_one(owner: nn.Module, stages: Sequence[nn.Module]) -> None:
    users = [module for stage in stages for module in stage.modules() if _has_own_encoding(module)]
    if not users:
        return
    encodings = [user._modules[_NAME] for user in users]
    _check_equal_sizes(encodings)  # type: ignore[arg-type]
    for user in users:
        del user._modules[_NAME]
        # Set without nn.Module's __setattr__, which would register the encoding in this module too.
        object.__setattr__(user, _NAME, encodings[0])
    owner.add_module(_NAME, encodings[0])


def _has_own_encoding(module: nn.Module) -> bool:
    return isinstance(module._modules.get(_NAME), RelativeEncoding)


def _check_equal_sizes(encodings: Sequence[nn.Module]) -> None:
    """Raise ValueError unless encodings that were built from one config have the same sizes."""
    sizes = [_size_attributes(encoding) for encoding in encodings]
    names = dict.fromkeys(name for each in sizes for name in each)
    distinct = {name: dict.fromkeys(str(each.get(name)) for each in sizes) for name in names}
    differing = '; '.join(f'{name} {", ".join(values)}' for name, values in distinct.items()
                          if len(values) > 1)
    if differing:
        raise ValueError(f"rel_pos_sharing='all' needs one size in all stages, but these differ: "
                         f"{differing}; use rel_pos_sharing='stage'")


def _size_attributes(encoding: nn.Module) -> dict[str, object]:
    """The numbers and tuples among the attributes of an encoding, or of the parts of a sum."""
    return {name: value for part in encoding.modules() if isinstance(part, RelativeEncoding)
            for name, value in vars(part).items() if isinstance(value, (int, tuple))}
