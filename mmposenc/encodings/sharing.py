"""One relative encoding for the attentions of several blocks."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from .base import RelativeEncoding
from .lookhere import LookHere

SHARING = ('layer', 'stage', 'all')
_NAME = 'rel_pos_encoding'


def share_encodings(sharing: str, model: nn.Module, stages: Sequence[nn.Module]) -> None:
    """Leave the blocks of a model one relative encoding for each attention, each stage, or all
    (CPVT, ICLR 2023, Table 8, counts one for all).

    A shared encoding belongs to the stage or the model, under the name ``rel_pos_encoding``: there
    its parameters are listed and saved, once. Attentions only refer to it, so that copies of the
    model (deepcopy, EMA) share theirs, and whatever walks over modules (optimizers,
    ``init_weights``, FSDP) meets it once. Where nothing is shared, :class:`LookHere` gets its
    depth.

    Args:
        sharing: 'layer' (nothing is shared), 'stage' or 'all'.
        model: owns what is shared by all, and what is shared in its one stage.
        stages: the stages of the model, which hold the attentions.

    Raises:
        ValueError: for another ``sharing``; for 'all' where the blocks need encodings of several
            sizes; for one module given to blocks that shall not share it.
    """
    if sharing not in SHARING:
        raise ValueError(f'rel_pos_sharing={sharing!r} must be one of {SHARING}')
    if sharing == 'all' or (sharing == 'stage' and len(stages) == 1):
        _share(model, stages)
    elif sharing == 'stage':
        for stage in stages:
            _share(stage, [stage])
    else:
        parts = [part for stage in stages for part in stage.modules() if isinstance(part, LookHere)]
        for index, part in enumerate(parts):
            part.at_depth(index, len(parts))
    owned = [module._modules[_NAME] for module in model.modules() if _owns(module)]
    if len(set(map(id, owned))) < len(owned):
        raise ValueError(f'rel_pos_encoding is a module and rel_pos_sharing={sharing!r}: it would '
                         f"be shared all the same; give a config dict, or rel_pos_sharing='all'")


def shared_encodings(model: nn.Module) -> list[RelativeEncoding]:
    """The encoding that a model or stage owns for its blocks, if there is one."""
    return [model._modules[_NAME]] if _owns(model) else []  # type: ignore[list-item]


def _share(owner: nn.Module, stages: Sequence[nn.Module]) -> None:
    users = [module for stage in stages for module in stage.modules() if _owns(module)]
    if not users:
        return
    encodings = [user._modules[_NAME] for user in users]
    _check_sizes(encodings)  # type: ignore[arg-type]
    for user in users:
        del user._modules[_NAME]
        # Past nn.Module, which would register it here too.
        user.__dict__[_NAME] = encodings[0]
    owner.add_module(_NAME, encodings[0])


def _owns(module: nn.Module) -> bool:
    return isinstance(module._modules.get(_NAME), RelativeEncoding)


def _check_sizes(encodings: Sequence[nn.Module]) -> None:
    """Encodings made by one config differ in nothing but the sizes of their attention."""
    sizes = [_sizes(encoding) for encoding in encodings]
    names = dict.fromkeys(name for each in sizes for name in each)
    found = {name: dict.fromkeys(str(each.get(name)) for each in sizes) for name in names}
    differing = '; '.join(f'{name} {", ".join(values)}' for name, values in found.items()
                          if len(values) > 1)
    if differing:
        raise ValueError(f"rel_pos_sharing='all' needs one size in all stages, but these differ: "
                         f"{differing}; use rel_pos_sharing='stage'")


def _sizes(encoding: nn.Module) -> dict[str, Any]:
    """Numbers and sides that an encoding, or a part of a sum, was made for."""
    return {name: value for part in encoding.modules() if isinstance(part, RelativeEncoding)
            for name, value in vars(part).items() if isinstance(value, (int, tuple))}
