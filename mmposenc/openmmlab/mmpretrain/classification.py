"""mmpretrain's data preprocessor for images of several sizes, and the distillation of classifiers
(DeiT): the teacher, the head of the student, and the model."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from mmengine.model import BaseModule
from mmpretrain.models import ClsDataPreprocessor as MMPretrainClsDataPreprocessor
from mmpretrain.models import DeiTClsHead, ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from ...checkpoint import read_checkpoint
from ...config_types import ConfigType
from ...functional.image_sizes import checked_one_batch, note_img_shapes
from ...registry import MODELS

#: ``inputs`` and ``data_samples`` of a batch.
Batch = dict[str, Any]


class ClsDataPreprocessor(MMPretrainClsDataPreprocessor):
    """mmpretrain's ClsDataPreprocessor, which stores the images' sizes on the batch for backbones
    with ``mask_padding=True``, or leaves images of several sizes unpadded.

    Args:
        pack: give the backbone, a :class:`~mmposenc.backbones.ViT`, a list of images instead of a
            padded batch. The dataloader needs ``collate_fn=dict(type='pseudo_collate')``.
        kwargs: arguments of mmpretrain's class.

    Raises:
        ValueError: ``pack=True`` with ``batch_augments``, which mix images of one size, or with
            ``pad_size_divisor``.
    """

    def __init__(self, pack: bool = False, **kwargs: object) -> None:
        for name, none, why in (('batch_augments', None, 'Mixup and CutMix mix images of one size'),
                                ('pad_size_divisor', 1, 'nothing is padded')):
            if pack and (value := kwargs.get(name) or none) != none:
                raise ValueError(f'pack=True with {name}={value!r}: {why}; leave {name} out')
        super().__init__(**kwargs)
        self.pack = pack

    def forward(self, data: Batch, training: bool = False) -> Batch:
        """Preprocess as mmpretrain does. With ``pack`` the inputs become a list of images (3, H,
        W), otherwise the batch's attribute ``img_shapes`` lists their sizes."""
        images, samples = data['inputs'], data.get('data_samples')
        if self.batch_augments is not None and training:
            return super().forward(data, training)
        if not self.pack:
            shapes = [tuple(image.shape[-2:]) for image in images]
            return note_img_shapes(super().forward(data, training), shapes)
        alone = [super(ClsDataPreprocessor, self).forward(
            {'inputs': [image], 'data_samples': samples and samples[i:i + 1]}, training)
            for i, image in enumerate(images)]
        return {'inputs': [part['inputs'][0] for part in alone],
                'data_samples': samples and [part['data_samples'][0] for part in alone]}


# This part of the file has the teacher.

#: The names of modules in timm's RegNet, and those in torchvision; blocks are renamed before.
_TIMM_REGNET = {
    'stem.conv.': 'stem.0.', 'stem.bn.': 'stem.1.', 'head.fc.': 'fc.',
    **{f'.conv{number}.{kind}.': f'.f.{letter}.{index}.'
       for number, letter in zip('123', 'abc', strict=True)
       for index, kind in enumerate(('conv', 'bn'))},
    '.se.fc': '.f.se.fc', '.downsample.conv.': '.proj.0.', '.downsample.bn.': '.proj.1.'}


class TorchvisionTeacher(BaseModule):
    """A classifier of torchvision, used as the teacher in distillation.

    Args:
        name: a name of ``torchvision.models.get_model``; 'regnet_y_16gf' is RegNetY-160, the
            teacher of DeiT.
        num_classes: number of classes.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)``, a file of torchvision or, for
            RegNets, of timm (DeiT's teacher is one). All weights must match.

    Raises:
        ValueError: torchvision has no such model.
    """

    def __init__(self, name: str, num_classes: int = 1000,
                 init_cfg: ConfigType | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        from torchvision.models import (  # type: ignore[import-untyped]
            get_model,
            list_models,
        )
        if name not in list_models():
            raise ValueError(f'name={name!r} must be a model of torchvision.models, such as '
                             f"'regnet_y_16gf' or 'resnet50'")
        self.model = get_model(name, weights=None, num_classes=num_classes)

    def init_weights(self) -> None:
        """Load the checkpoint of ``init_cfg``.

        Raises:
            ValueError: the checkpoint does not fit the model.
        """
        cfg = self.init_cfg
        if not (isinstance(cfg, dict) and cfg.get('type') == 'Pretrained'):
            super().init_weights()
            return
        state: Mapping[str, Tensor] = read_checkpoint(cfg['checkpoint']).state_dict
        if 'stem.conv.weight' in state:
            state = rename_timm_regnet(state)
        try:
            self.model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"{cfg['checkpoint']} does not fit: {error}") from error
        self._is_init = True

    def forward(self, inputs: Tensor, data_samples: object = None, mode: str = 'tensor') -> Tensor:
        """Predict logits (B, num_classes) for images (B, 3, H, W)."""
        return self.model(checked_one_batch(inputs))


def rename_timm_regnet(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of timm's RegNet under torchvision's names.

    Raises:
        ValueError: a name is not one of timm's RegNet.
    """
    renamed = {}
    for name, value in state.items():
        theirs = next((part for part in _TIMM_REGNET if part in name), None)
        if theirs is None:
            raise ValueError(f"'{name}' is not a weight of timm's RegNet")
        ours = re.sub(r'^s(\d+)\.b(\d+)', lambda block: (
            f'trunk_output.block{block[1]}.block{block[1]}-{int(block[2]) - 1}'), name)
        renamed[ours.replace(theirs, _TIMM_REGNET[theirs])] = value
    return renamed


@torch.no_grad()
def hard_labels(teacher: torch.nn.Module, inputs: Tensor, num_classes: int) -> Tensor:
    """The class (B,) long that the teacher predicts for each image.

    Raises:
        ValueError: the teacher has another number of classes than the student.
    """
    logits = teacher(inputs, mode='tensor')
    if logits.dim() != 2 or logits.shape[1] != num_classes:
        raise ValueError(f'the teacher returns logits of shape {tuple(logits.shape)}; it must have '
                         f"the student's classes, shape ({len(inputs)}, {num_classes})")
    return logits.argmax(dim=1)


# This part of the file has hard distillation through a distillation token, as in DeiT.


class DistillationHead(DeiTClsHead):
    """mmpretrain's DeiTClsHead with the loss of hard distillation (DeiT, Touvron et al., ICML 2021,
    Eq. 3): (1 - alpha) CE(class token, label) + alpha CE(distillation token, teacher's decision).

    Args:
        alpha: weight of the teacher's loss, in [0, 1].
        kwargs: arguments of DeiTClsHead; ``loss`` is the loss of the class token.

    Raises:
        ValueError: ``alpha`` is outside [0, 1].

    Predictions are the mean of both tokens' logits, as in DeiTClsHead. Weights are drawn from a
    truncated normal distribution of standard deviation 0.02, as in the authors' release.
    """

    def __init__(self, alpha: float = 0.5, **kwargs: object) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f'alpha={alpha} must be in [0, 1]')
        kwargs.setdefault('init_cfg', dict(type='TruncNormal', layer='Linear', std=0.02))
        super().__init__(**kwargs)
        self.alpha = alpha

    def distillation_loss(self, feats: tuple[Tensor, ...], data_samples: list[DataSample],
                          teacher_labels: Tensor) -> dict[str, Tensor]:
        """Both losses, with their weights.

        Args:
            feats: outputs of the backbone; the last is (2, B, C), class tokens, then distillation
                tokens.
            data_samples: samples with labels, or with scores if the batch is mixed (Mixup).
            teacher_labels: (B,) long, the teacher's classes.

        Returns:
            The losses by name.
        """
        cls_token, dist_token = self.pre_logits(feats)
        losses = self._get_loss(self.layers.head(cls_token), data_samples)
        scores = self.layers.head_dist(dist_token)
        taught = nn.functional.cross_entropy(scores.float(), teacher_labels)
        # The name under which mmengine logs the sum of all losses is 'loss', so this part is
        # renamed.
        losses['loss_cls'] = (1 - self.alpha) * losses.pop('loss')
        return {**losses, 'loss_distill': self.alpha * taught}


class DistilledClassifier(ImageClassifier):
    """mmpretrain's ImageClassifier trained by distillation from a teacher (DeiT, Sec. 4).

    The teacher sees the student's batches, including mixed images. It is frozen and in evaluation
    mode. Its weights are not in ``parameters()`` or ``state_dict()``. Testing needs no teacher.

    Args:
        teacher: config of a classifier with weights in its ``init_cfg``, which ``init_weights``
            loads (the runner calls it before training), or a module.
            ``teacher(inputs, mode='tensor')`` must return logits. None: the model can only be
            tested.
        kwargs: arguments of ImageClassifier; the backbone must return two tokens
            (``distilled=True``), and the head must be a :class:`DistillationHead`.

    Raises:
        ValueError: the head is another one, or the teacher has no weights.
    """

    def __init__(self, teacher: nn.Module | ConfigType | None = None, **kwargs: object) -> None:
        super().__init__(**kwargs)
        if not isinstance(self.head, DistillationHead):
            raise ValueError(f'head is a {type(self.head).__name__}; '
                             f"type='mmposenc.DistillationHead' is required")
        self._ready = isinstance(teacher, nn.Module)
        if isinstance(teacher, dict):
            if not teacher.get('init_cfg'):
                raise ValueError("teacher has no init_cfg: with random weights it teaches nothing; "
                                 "add init_cfg=dict(type='Pretrained', checkpoint=...)")
        # Stored in a list, so that it is no submodule: state_dict and parameters are those of the
        # student.
        self._teacher: list[BaseModule] = []
        if teacher is not None:
            built = MODELS.build(teacher) if isinstance(teacher, dict) else teacher
            self._teacher.append(built.requires_grad_(False).eval())

    def init_weights(self) -> None:
        """Initialise the student and load the teacher."""
        super().init_weights()
        if not self._ready and self._teacher:
            self._teacher[0].init_weights()
            self._teacher[0].requires_grad_(False).eval()
            self._ready = True

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DistilledClassifier:
        """Move the teacher to the device and dtype of the student."""
        for teacher in self._teacher:
            teacher._apply(fn, recurse)
        super()._apply(fn, recurse)
        return self

    def loss(self, inputs: Tensor, data_samples: list[DataSample]) -> dict[str, Tensor]:
        """Losses of a batch, see :class:`DistillationHead`.

        Raises:
            RuntimeError: there is no teacher, or ``init_weights`` was not called.
        """
        if not self._teacher or not self._ready:
            why = 'is not loaded: call init_weights()' if self._teacher else 'is None'
            raise RuntimeError(f'the teacher {why}')
        with torch.no_grad():
            labels = hard_labels(self._teacher[0], inputs, self.head.num_classes)
        return self.head.distillation_loss(self.extract_feat(inputs), data_samples, labels)
