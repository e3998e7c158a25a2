"""mmpretrain's ConvNeXt, which a release's file must fit."""
from __future__ import annotations

from mmpretrain.models.backbones import ConvNeXt as MMPretrainConvNeXt

from ...backbones.checkpoints import load_of_init_cfg
from ...backbones.optional_mmengine import is_pretrained


class ConvNeXt(MMPretrainConvNeXt):
    """mmpretrain's ConvNeXt (same arguments). Its ``init_cfg`` takes the files of ConvNeXt, V2 and
    DINOv3's of their releases, timm and Hugging Face, and raises a ValueError for one that does not
    fit. Norms of ``out_indices`` before the last stage, which no file has, keep their initial
    values. (mmpretrain's class takes the same files, but only warns.)
    """

    #: Weights that a classifier's file lacks.
    may_be_new = r'norm[0-2]\..*'

    def init_weights(self) -> None:
        """Initialise as mmpretrain does, or load a file."""
        if is_pretrained(self.init_cfg):
            load_of_init_cfg(self, self.init_cfg)
        else:
            super().init_weights()

    def train(self, mode: bool = True) -> ConvNeXt:
        """Set the mode as mmpretrain does, and return the backbone."""
        super().train(mode)
        return self


__all__ = ['ConvNeXt']
