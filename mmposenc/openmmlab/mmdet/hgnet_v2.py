"""The backbone of D-FINE."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmpretrain.models.backbones import TIMMBackbone
from torch import nn

from mmposenc.backbones.checkpoints import load_of_init_cfg
from mmposenc.backbones.optional_mmengine import is_pretrained


class HGNetV2(TIMMBackbone):
    """timm's HGNetV2 (PP-HGNetV2) as D-FINE has it.

    Args:
        model_name: timm's name, 'hgnetv2_b0' to 'hgnetv2_b6'.
        out_indices: stages whose maps are returned, from 0.
        frozen_stem: whether the stem is not trained.
        norm_eval: whether BatchNorm keeps its statistics, and its parameters are not trained.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)``; the file may be the release's, of
            this backbone or of a detector with it.
        kwargs: other arguments of ``timm.create_model``.
    """

    def __init__(self, model_name: str = 'hgnetv2_b0', out_indices: Sequence[int] = (1, 2, 3),
                 frozen_stem: bool = False, norm_eval: bool = False, init_cfg: Any = None,
                 **kwargs: object) -> None:
        super().__init__(model_name, features_only=True, out_indices=tuple(out_indices),
                         init_cfg=init_cfg, **kwargs)
        self.norm_eval = norm_eval
        self.norms = [each for each in self.modules() if isinstance(each, nn.BatchNorm2d)]
        frozen = [self.timm_model['stem']] * frozen_stem + self.norms * norm_eval
        for module in frozen:
            module.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> HGNetV2:
        """Set the mode; with ``norm_eval`` BatchNorm stays in evaluation."""
        super().train(mode)
        for norm in self.norms if self.norm_eval else ():
            norm.eval()
        return self

    def init_weights(self) -> None:
        """Initialise as timm does, or load a file."""
        if is_pretrained(self.init_cfg):
            load_of_init_cfg(self, self.init_cfg)


__all__ = ['HGNetV2']
