"""Teachers for distillation."""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from mmengine.model import BaseModule
from mmengine.runner.checkpoint import CheckpointLoader
from torch import Tensor

#: Modules of timm's RegNet, and what torchvision calls them.
_TIMM_REGNET = (
    (r'stem\.conv', 'stem.0'), (r'stem\.bn', 'stem.1'),
    (r's(\d+)\.b(\d+)\.conv([123])\.conv', r'{block}.f.{conv}.0'),
    (r's(\d+)\.b(\d+)\.conv([123])\.bn', r'{block}.f.{conv}.1'),
    (r's(\d+)\.b(\d+)\.se\.(fc[12])', r'{block}.f.se.{part}'),
    (r's(\d+)\.b(\d+)\.downsample\.conv', '{block}.proj.0'),
    (r's(\d+)\.b(\d+)\.downsample\.bn', '{block}.proj.1'),
    (r'head\.fc', 'fc'))


class TorchvisionClassifier(BaseModule):
    """A classifier of torchvision, to teach others.

    Args:
        name: as of ``torchvision.models.get_model``; 'regnet_y_16gf' is RegNetY-160, the teacher of
            DeiT.
        num_classes: outputs of its last layer.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)`` takes torchvision's files and, for
            RegNets, timm's, of which DeiT's teacher is one. It must fit whole.
    """

    def __init__(self, name: str, num_classes: int = 1000,
                 init_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        from torchvision.models import (  # type: ignore[import-untyped]
            get_model,
            list_models,
        )
        if name not in list_models():
            raise ValueError(f'name={name!r} is no model of torchvision.models, such as '
                             f"'regnet_y_16gf' or 'resnet50'")
        self.model = get_model(name, weights=None, num_classes=num_classes)

    def init_weights(self) -> None:
        """Load the checkpoint of ``init_cfg``.

        Raises:
            ValueError: if it does not fit.
        """
        cfg = self.init_cfg
        if not (isinstance(cfg, dict) and cfg.get('type') == 'Pretrained'):
            super().init_weights()
            return
        state = CheckpointLoader.load_checkpoint(cfg['checkpoint'], map_location='cpu')
        for wrapper in ('model', 'state_dict'):
            state = state.get(wrapper, state) if isinstance(state, Mapping) else state
        if 'stem.conv.weight' in state:
            state = rename_timm_regnet(state)
        try:
            self.model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"{cfg['checkpoint']} does not fit: {error}") from error
        self._is_init = True

    def forward(self, inputs: Tensor, data_samples: Any = None, mode: str = 'tensor') -> Tensor:
        """Images (B, 3, H, W) to logits (B, num_classes)."""
        out: Tensor = self.model(inputs)
        return out


def rename_timm_regnet(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of timm's RegNet under torchvision's names.

    Raises:
        ValueError: naming a weight that timm's RegNet does not have.
    """
    return {_torchvision_name(name): value for name, value in state.items()}


def _torchvision_name(name: str) -> str:
    module, _, parameter = name.rpartition('.')
    for pattern, target in _TIMM_REGNET:
        found = re.fullmatch(pattern, module)
        if found:
            groups = (*found.groups(), '', '', '')
            block = ''
            if groups[0]:
                block = f'trunk_output.block{groups[0]}.block{groups[0]}-{int(groups[1]) - 1}'
            conv = dict(zip('123', 'abc', strict=True)).get(groups[2], '')
            return target.format(block=block, conv=conv, part=groups[2]) + '.' + parameter
    raise ValueError(f"'{name}' is no weight of timm's RegNet")


@torch.no_grad()
def hard_labels(teacher: torch.nn.Module, inputs: Tensor, num_classes: int) -> Tensor:
    """What the teacher takes the images for: (B,) long.

    Raises:
        ValueError: if it does not tell the student's classes apart.
    """
    logits = teacher(inputs, mode='tensor')
    if logits.dim() != 2 or logits.shape[1] != num_classes:
        raise ValueError(f'the teacher returns {tuple(logits.shape)}; ({len(inputs)}, '
                         f'{num_classes}), logits of the same classes, is required')
    labels: Tensor = logits.argmax(dim=1)
    return labels
