"""BaseModule, ModuleList and logging: those of mmengine if it is installed, otherwise replacements
that need only torch.

With mmengine a backbone also has the registry, ``init_cfg`` of any kind, and mmengine's log.
Without it, a backbone is built, run, trained, saved and loaded in the same way.
"""
from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeGuard

from torch import nn

from ..config_types import ConfigType
from ..dependencies import require


def is_pretrained(init_cfg: object) -> TypeGuard[ConfigType]:
    """Whether an ``init_cfg`` loads a checkpoint: ``dict(type='Pretrained', checkpoint=...)``."""
    return isinstance(init_cfg, dict) and init_cfg.get('type') == 'Pretrained'


if TYPE_CHECKING or find_spec('mmengine') is None:
    class BaseModule(nn.Module):
        """A module with mmengine's ``init_cfg`` and ``init_weights``, without mmengine.

        Args:
            init_cfg: None, or ``dict(type='Pretrained', checkpoint=...)``, which backbones use.

        Raises:
            ValueError: any other ``init_cfg``, which needs mmengine.
        """

        def __init__(self, init_cfg: ConfigType | None = None) -> None:
            super().__init__()
            if init_cfg and not is_pretrained(init_cfg):
                raise ValueError(f'init_cfg={init_cfg!r}: without mmengine it must be '
                                 f"dict(type='Pretrained', checkpoint=...)")
            self.init_cfg = copy.deepcopy(init_cfg)
            self._is_init = False

        def init_weights(self) -> None:
            """Call ``init_weights`` of the children; a module initialises its own weights in
            ``__init__``.

            Raises:
                ValueError: ``init_cfg`` has a checkpoint, but this is not a backbone.
            """
            if self.init_cfg:
                raise ValueError(f'init_cfg={self.init_cfg!r}: {type(self).__name__} loads no '
                                 f'checkpoint without mmengine; use load_state_dict')
            for child in self.children():
                if hasattr(child, 'init_weights') and not getattr(child, '_is_init', False):
                    child.init_weights()
            self._is_init = True

    class ModuleList(BaseModule, nn.ModuleList):
        """An nn.ModuleList whose members are initialised with the rest of the model."""

        def __init__(self, modules: Iterable[nn.Module] | None = None,
                     init_cfg: ConfigType | None = None) -> None:
            BaseModule.__init__(self, init_cfg)
            nn.ModuleList.__init__(self, modules)

    def print_log(message: str, logger: str | None = None, level: int = logging.INFO) -> None:
        """Write a line to the log 'mmposenc'."""
        logging.getLogger('mmposenc').log(level, message)
else:
    require(__name__, libraries=())
    from mmengine.logging import MMLogger
    from mmengine.model import BaseModule, ModuleList

    from ..checkpoint import mmengine_loading  # noqa: F401  (files are read without running code)

    def print_log(message: str, logger: str | None = None, level: int = logging.INFO) -> None:
        """Write a line to the log of the run, which its console shows too."""
        MMLogger.get_current_instance().log(level, message)

__all__ = ['BaseModule', 'ModuleList', 'is_pretrained', 'print_log']
