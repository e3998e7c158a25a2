"""Sharing one relative encoding between the attention layers of several blocks."""
from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from .base import RelativeEncoding
from .combined import CombinedRPE
from .lookhere import LookHere
from .placement import check_blocks_exist

SHARING = ('layer', 'stage', 'all')
_NAME = 'rel_pos_encoding'


def share_encodings(sharing: str, model: nn.Module, stages: Sequence[nn.Module]) -> None:
    """Keep one relative encoding for each attention layer, for each stage, or for the whole model
    (CPVT, ICLR 2023, Table 8, has one for the whole model).

    A shared encoding is a submodule ``rel_pos_encoding`` of the stage or the model, so that its
    parameters are saved once. Attention layers only refer to it. Copies of the model (deepcopy,
    EMA) share their own, and optimizers and ``init_weights`` find it once. With 'layer',
    :class:`LookHere` gets its depth, and encodings with ``blocks`` leave all other blocks.

    Args:
        sharing: 'layer' (nothing is shared), 'stage' or 'all'.
        model: owns the encoding with 'all', or if there is only one stage.
        stages: the stages of the model, which contain the attention layers.

    Raises:
        ValueError: for another ``sharing``; for 'all' if blocks need encodings of different sizes;
            for one module that is given to several blocks with 'layer' or 'stage'; for ``blocks``
            that the model does not have, or of a shared encoding.
    """
    if sharing not in SHARING:
        raise ValueError(f'rel_pos_sharing={sharing!r} must be one of {SHARING}')
    chosen = [part for stage in stages for part in stage.modules()
              if isinstance(part, RelativeEncoding) and part.blocks is not None]
    if chosen and sharing != 'layer':
        raise ValueError(f"blocks={list(chosen[0].blocks or ())} needs rel_pos_sharing='layer', "
                         f'not {sharing!r}')
    if sharing == 'all' or (sharing == 'stage' and len(stages) == 1):
        _share_one(model, stages)
    elif sharing == 'stage':
        for stage in stages:
            _share_one(stage, [stage])
    else:
        parts = [part for stage in stages for part in stage.modules() if isinstance(part, LookHere)]
        for index, part in enumerate(parts):
            part.at_depth(index, len(parts))
        if chosen:
            _leave_other_blocks(stages)
    owned = [module._modules[_NAME] for module in model.modules() if _has_own_encoding(module)]
    if len(set(map(id, owned))) < len(owned):
        raise ValueError(f'rel_pos_encoding is a module and rel_pos_sharing={sharing!r}: it would '
                         f"be shared all the same; give a config dict, or rel_pos_sharing='all'")


def shared_encodings(model: nn.Module) -> list[RelativeEncoding]:
    """The encoding that a model, a stage or an attention owns as a list of one, or an empty list.
    """
    return [model._modules[_NAME]] if _has_own_encoding(model) else []  # type: ignore[list-item]


def _leave_other_blocks(stages: Sequence[nn.Module]) -> None:
    """Take encodings with ``blocks`` out of the attention layers of all others."""
    users = [module for stage in stages for module in stage.modules() if _has_own_encoding(module)]
    for index, user in enumerate(users):
        whole, = shared_encodings(user)
        parts = [whole]
        if isinstance(whole, CombinedRPE) and whole.blocks is None:
            parts = whole._combined_encodings()
        for part in parts:
            check_blocks_exist(part.blocks or (0,), len(users))
        left = [part for part in parts if part.blocks is None or index in part.blocks]
        if len(left) < len(parts):
            user._modules[_NAME] = CombinedRPE(
                left, num_prefix_tokens=whole.num_prefix_tokens) if len(left) > 1 else (
                left[0] if left else None)


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
