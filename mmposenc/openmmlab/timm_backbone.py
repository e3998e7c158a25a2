"""timm's vision transformers as backbones of mmpretrain's classifiers."""
from __future__ import annotations

import sys
from typing import Any

from mmengine.logging import print_log
from mmengine.model import BaseModule
from torch import Tensor, nn

from ..backbones.archs import replaced_encodings
from ..backbones.checkpoints import load_pretrained
from ..backbones.optional_mmengine import is_pretrained
from ..checkpoint.encoding_names import SLOTS
from ..checkpoint.file_weights import read_checkpoint
from ..checkpoint.numbers import copy_weights
from ..checkpoint.rules import names_text
from ..config_types import ConfigType
from ..encodings.base import RelativeConfig
from ..encodings.build import listed
from ..encodings.placement import EncodingConfigs, Positions
from ..integrations import timm as integration
from ..terminal.messages import suggestion_text

import timm  # isort: skip (after mmposenc has declared torchvision's operators)

_SWINS = ['swin_transformer', 'swin_transformer_v2']
#: For each module of timm, the encoding of this project that equals the bias in its attention.
_OWN_BIASES = {'swin_transformer': 'RelativePositionBias', 'swin_transformer_v2': 'LogSpacedCPB'}


class TimmBackbone(BaseModule):
    """A ViT, Eva or Swin of timm with any encodings, which gives timm's pooled features, no maps.

    Args:
        name: a name of ``timm.create_model``.
        img_size: side in pixels of the images that its tables are created for; other sizes work.
        pos_encoding, positions, rel_pos_encoding, rel_pos_sharing: as in
            :func:`mmposenc.integrations.timm.add_encoding`. 'own', the default, also in a list, is
            timm's own encoding. So is one that equals it, with ``positions`` None:
            LearnedPositionEmbedding for ``pos_embed``, RelativePositionBias for Swin's table,
            LogSpacedCPB for Swin V2's.
        options: further arguments of ``timm.create_model``, such as ``dict(drop_path_rate=0.1)``.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)``, a file of timm, 'hf://OWNER/NAME' or
            'timm://MODEL'; timm resizes its tables. Encodings that the file does not have keep
            their initial values.

    Raises:
        ValueError: timm has no such model, or encodings cannot be added to it.
    """

    def __init__(self, name: str, img_size: int = 224,
                 pos_encoding: EncodingConfigs | str = 'own', positions: Positions = None,
                 rel_pos_encoding: RelativeConfig | str | None = 'own',
                 rel_pos_sharing: str = 'layer',
                 options: ConfigType | None = None,
                 init_cfg: ConfigType | None = None) -> None:
        super().__init__(init_cfg)
        self.name, self.options = name, dict(options or {}, img_size=img_size)
        self.model = self._create()
        plain, stages = integration.parts_of(self.model)
        table = bool(plain) and plain[0].pos_embed is not None
        bias = bool(stages) or getattr(plain[0], 'rope', None) is not None
        module = next((each for each in _SWINS if _in_modules(name, [each])), '')
        own_bias = _OWN_BIASES.get(module, '')
        keeps_table, pos_encoding = _is_own_listed_and_others(
            pos_encoding, 'LearnedPositionEmbedding' if table and positions is None else '')
        keeps_bias, rel_pos_encoding = _is_own_listed_and_others(rel_pos_encoding, own_bias)
        drops = dict(drop_pos_embed=table and not keeps_table, drop_rel_pos=bias and not keeps_bias)
        if pos_encoding or rel_pos_encoding or any(drops.values()):
            integration.add_encoding(self.model, pos_encoding, rel_pos_encoding, positions,
                                     rel_pos_sharing=rel_pos_sharing, **drops)
        dropped = [dict(type=kind) for kind in ('LearnedPositionEmbedding',
                                                own_bias or 'RotaryEmbedding')]
        self.replaced_encodings = replaced_encodings(
            type(self), {slot: each if drop else None for slot, each, drop
                         in zip(SLOTS, dropped, drops.values(), strict=True)},
            dict(pos_encoding=pos_encoding, rel_pos_encoding=rel_pos_encoding))
        self.out_channels = int(self.model.head_hidden_size)
        # The stride of the coarsest map.
        self.patch_size = int(self.model.feature_info[-1]['reduction'])

    def _create(self) -> nn.Module:
        if not timm.is_model(self.name):
            near = suggestion_text(self.name.partition('.')[0], timm.list_models())
            raise ValueError(f'timm has no model {self.name!r}{near}')
        sizes = 'strict_img_size' if _in_modules(self.name, _SWINS) else 'dynamic_img_size'
        try:
            return timm.create_model(self.name, num_classes=0, **{
                sizes: sizes == 'dynamic_img_size', **self.options})
        except (TypeError, RuntimeError) as error:
            raise ValueError(f'timm:{self.name} takes no encodings (ViT, Eva and Swin do) or '
                             f'these options: {error}') from error

    def init_weights(self) -> None:
        """Load the weights of ``init_cfg``; without it, keep timm's initial values.

        Raises:
            ValueError: the weights do not fit.
        """
        if not is_pretrained(self.init_cfg) or self._is_init:
            return
        file = str(self.init_cfg['checkpoint'])
        state = read_checkpoint(file).state_dict  # Some versions of timm's reader may run code.
        plain = self._create()  # The file has the original encodings of the model.
        try:
            resize = sys.modules[type(plain).__module__].checkpoint_filter_fn
            resized = {key: value for key, value in resize(state, plain).items()
                       if not key.startswith('head')}
        except (KeyError, RuntimeError) as error:
            raise ValueError(f'{file} does not fit timm:{self.name}: {error}') from error
        load_pretrained(plain, resized, name=file, remedy=f' timm:{self.name}')
        state = plain.state_dict()
        copy_weights(self.model, state, file)
        dropped = state.keys() - self.model.state_dict().keys()
        if dropped:
            print_log(f'{file}: left out, as the model lacks these encodings: '
                      f'{names_text(sorted(dropped))}', 'current')
        self._is_init = True

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """Return timm's pooled features (B, C) in a tuple, for images (B, 3, H, W)."""
        return (self.model(x),)


def _is_own_listed_and_others(encodings: EncodingConfigs | RelativeConfig | str, name: str
                              ) -> tuple[bool, Any]:
    """Whether timm's own encoding is among these (as 'own' or by its name here), and the other
    encodings."""
    others = [each for each in listed(encodings) if each != 'own' and not _is_config_of(each, name)]
    return len(others) < len(listed(encodings)), others[0] if len(others) == 1 else others or None


def _is_config_of(cfg: object, name: str) -> bool:
    """Whether a config is one of this encoding; options of resizing are ignored, because timm
    resizes."""
    return (isinstance(cfg, dict) and cfg['type'] in (name, f'mmposenc.{name}')
            and not set(cfg) - {'type', 'resize'})


def _in_modules(name: str, modules: list[str]) -> bool:
    return bool(timm.models.is_model_in_modules(name.partition('.')[0], modules))
