"""The base class of all backbones: arguments, encodings, freezing, weights and layer depths."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

from ..config_types import ReadOnlyConfig
from ..signatures import parameters_of
from ..terminal.messages import suggestion_text
from .checkpoints import load_of_init_cfg
from .optional_mmengine import BaseModule, is_pretrained
from .shared_arguments import SharedArguments

_STAGE = re.compile(r'stages\.(\d+)\.')
_BLOCK = re.compile(r'blocks\.(\d+)\.|pos_encodings\.at\.after(\d+)\.')
_BEFORE = re.compile(r'patch_embed\.|pos_encodings\.at\.before\.|norm_pre\.|[a-z]+_tokens?$')


class Backbone(BaseModule):
    """The base class of all backbones: ``blocks``, or ``stages`` of blocks.

    A subclass takes its own arguments and ``**options``, makes a record of the latter with
    :meth:`shared_arguments`, and hands it to this constructor and, at its end, to
    ``_init_and_freeze``.

    Args:
        shared: the arguments of all backbones.
    """

    #: The arguments of each published model, by its name as ``arch``.
    archs: Mapping[str, ReadOnlyConfig] = {}
    #: Arguments that must be given if there is no arch.
    sizes: Sequence[str] = ()
    #: Arguments that change the model in more than its sizes and encodings.
    structure: Sequence[str] = ()
    #: Parts of names of parameters that are trained although their stage is frozen.
    trainable: tuple[str, ...] = ()

    def __init__(self, shared: SharedArguments) -> None:
        super().__init__(init_cfg=shared.init_cfg)
        self.frozen_stages = shared.frozen_stages
        self.with_cp, self.mask_padding = shared.with_cp, shared.mask_padding

    @classmethod
    def option_parameters(cls) -> Mapping[str, Parameter]:
        """The parameters that ``**options`` of a subclass may have, for
        :func:`~mmposenc.signatures.parameters_of`."""
        return signature(SharedArguments).parameters

    @classmethod
    def shared_arguments(cls, **options: Any) -> SharedArguments:
        """The record of the arguments that all backbones take.

        Raises:
            TypeError: an unknown argument; the message suggests similar names.
            ValueError: a rate or ``trainable`` is no such value.
        """
        for name in options.keys() - Backbone.option_parameters():
            raise TypeError(f'{cls.__name__} got an unexpected keyword argument {name!r}'
                            f'{suggestion_text(name, parameters_of(cls))}')
        return SharedArguments(**options)

    def _check_parts(self, parts: str, count: int, out_indices: Sequence[int] | None) -> None:
        """Raise ValueError if ``out_indices`` or ``frozen_stages`` exceed the number of ``parts``
        ('stages' or 'blocks')."""
        if out_indices is not None and (
                not out_indices or not all(0 <= i < count for i in out_indices)):
            raise ValueError(f'out_indices={tuple(out_indices)} must be {parts} from 0 to '
                             f'{count - 1}')
        if not isinstance(self.frozen_stages, int) or not -1 <= self.frozen_stages <= count:
            raise ValueError(f'frozen_stages={self.frozen_stages!r} must be a whole number from '
                             f'-1 to {count}')

    def _init_and_freeze(self, shared: SharedArguments) -> None:
        """Initialise the model, check the options of freezing and freeze.

        Raises:
            ValueError: a name of no parameter or module, or options without frozen stages.
        """
        self.trainable = tuple(shared.trainable)
        self.reset_parameters()
        if self.trainable and self.frozen_stages < 0:
            raise ValueError(f'trainable={self.trainable!r} needs frozen stages, but '
                             f'frozen_stages=-1; set frozen_stages')
        for part in self.trainable:
            # The name of an encoding without parameters, such as a rotary one, trains nothing, but
            # it is no error.
            names = [name for name, _ in (*self.named_parameters(), *self.named_modules())]
            if not part or not any(part in name for name in names):
                raise ValueError(f'trainable={self.trainable}: {part!r} is in the name of no '
                                 f'parameter or module; such a name is {names[0]!r}')
        self._freeze()

    def _freeze(self) -> None:
        """Call :func:`.freezing.freeze` for the stages that ``frozen_stages`` counts."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Any:
        """Set training or evaluation mode; frozen stages stay in evaluation mode."""
        super().train(mode)
        self._freeze()
        return self

    def reset_parameters(self) -> None:
        """Draw all weights anew, as their layers define it."""
        raise NotImplementedError

    def init_weights(self) -> None:
        """Initialise as mmengine does; a Pretrained checkpoint is converted and checked.

        Raises:
            ValueError: the checkpoint does not fit, unless ``strict=False``.
        """
        if not is_pretrained(self.init_cfg):
            super().init_weights()
            return
        load_of_init_cfg(self, self.init_cfg)
        self._is_init = True

    def get_layer_depth(self, param_name: str, prefix: str = 'backbone.') -> tuple[int, int]:
        """Depth of a parameter and the number of depths, for layer-wise learning rates, as in
        mmpretrain's backbones (BEiT, Bao et al., ICLR 2022, Appendix H).

        Depth 0 is everything before the first block, n is the n-th block (over all stages) and the
        modules that follow it, and the last depth is everything after the blocks and outside of the
        backbone. A shared encoding has the depth of the first block that uses it.

        Args:
            param_name: name of the parameter in the model.
            prefix: name of the backbone in the model, with a dot.
        """
        blocks = [len(stage.blocks) for stage in getattr(self, 'stages', None) or [self]]
        last = sum(blocks) + 1
        if not param_name.startswith(prefix):
            return last, last + 1
        name = param_name[len(prefix):].replace('_orig_mod.', '')  # of compiled parts
        stage = _STAGE.match(name)
        index, rest = (int(stage[1]), name[stage.end():]) if stage else (0, name)
        first = sum(blocks[:index])
        if block := _BLOCK.match(rest):
            depth = first + 1 + int(block[1] or block[2] or 0)
        elif rest.startswith('rel_pos_encoding.'):
            depth = first + 1
        elif rest.startswith('downsample.') or stage and rest.startswith('norm.'):
            depth = first + blocks[index]
        else:
            depth = first if _BEFORE.match(rest) else last
        return depth, last + 1
