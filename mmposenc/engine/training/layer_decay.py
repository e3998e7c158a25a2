"""Sets the learning rate and weight decay of single parameters, as paramwise_cfg asks for them."""
from __future__ import annotations

from mmengine.optim import DefaultOptimWrapperConstructor, OptimWrapper
from torch import nn

from mmposenc.backbones.base import Backbone
from mmposenc.config_types import ConfigType
from mmposenc.encodings import relative_tables
from mmposenc.openmmlab.upstream.groups import groups_without_log

from ..config.nodes import type_without_library

_NO_DECAY = ('norm_decay_mult', 'bias_decay_mult', 'flat_decay_mult')
_TABLES = ('pos_embed', '_token', '_tokens', 'logit_scale')
#: mmseg's constructors, which recognise backbones and blocks by mmseg's own names.
OF_MMSEG = ('LayerDecayOptimizerConstructor', 'LearningRateDecayOptimizerConstructor')


def with_our_constructor(optim_wrapper: ConfigType, model: nn.Module) -> ConfigType:
    """The config of an optimizer wrapper for a backbone under a name of this project, with this
    project's constructor in place of mmengine's or mmseg's. Drop-ins keep the library's, but for
    mmseg's with a backbone that it does not know."""
    backbone, paramwise = getattr(model, 'backbone', None), optim_wrapper.get('paramwise_cfg')
    name, kind = type_without_library({'type': optim_wrapper.get('constructor')}), type(backbone)
    if not isinstance(backbone, Backbone):
        return optim_wrapper
    drop_in, paramwise = hasattr(kind, 'numbered_counterpart'), dict(paramwise or {})
    if name in ('', 'DefaultOptimWrapperConstructor') and not drop_in:
        return {**optim_wrapper, 'constructor': OptimWrapperConstructor}
    if name not in OF_MMSEG:
        return optim_wrapper
    if paramwise.get('decay_type') == 'stage_wise':
        raise ValueError(f"optim_wrapper.paramwise_cfg.decay_type='stage_wise' is for ConvNeXt; "
                         f"{kind.__name__} needs 'layer_wise_vit'")
    if drop_in and ('BEiT' in kind.__name__ or 'MAE' in kind.__name__):
        return optim_wrapper
    paramwise.pop('decay_type', None)
    if 'decay_rate' in paramwise:
        paramwise['layer_decay_rate'] = paramwise.pop('decay_rate')
    return {**optim_wrapper, 'constructor': LayerDecayOptimWrapperConstructor,
            'paramwise_cfg': paramwise}


class OptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """mmengine's DefaultOptimWrapperConstructor, whose ``custom_keys`` change only what they name.

    In mmengine a key with a ``lr_mult`` alone, such as ``backbone=dict(lr_mult=0.1)``, switches the
    weight decay of norms and biases on, which ``norm_decay_mult`` and its like had switched off.
    Here a key without ``decay_mult`` leaves weight decay as it is without the key.

    Args:
        optim_wrapper_cfg: the optimizer's wrapper.
        paramwise_cfg: as in mmengine.
    """

    def add_params(self, params: list[dict], module: nn.Module, prefix: str = '',
                   is_dcn_module: int | float | None = None) -> None:
        """Add a group for each parameter of a module, as mmengine does."""
        super().add_params(params, module, prefix, is_dcn_module)
        keys = self.paramwise_cfg.get('custom_keys', {})
        if prefix or all('decay_mult' in key for key in keys.values()) or self.base_wd is None:
            return
        naming = {name: key for name, key in keys.items() if 'decay_mult' in key}
        without = DefaultOptimWrapperConstructor(
            dict(optimizer=self.optimizer_cfg), {**self.paramwise_cfg, 'custom_keys': naming})
        decays = {id(group['params'][0]): group.get('weight_decay', self.base_wd)
                  for group in groups_without_log(without, module)}
        for group in params:
            group['weight_decay'] = decays[id(group['params'][0])]


class LayerDecayOptimWrapperConstructor(OptimWrapperConstructor):
    """Layer-wise learning-rate decay (BEiT, Bao et al., ICLR 2022, Appendix H), for a backbone in
    any model of mmdet, mmseg or mmpretrain.

    The n-th of L blocks learns at ``layer_decay_rate ** (L + 1 - n)`` times the learning rate that
    it would have, what comes before the blocks as n = 0, and the rest of the model at that rate.
    Norms, biases, other vectors, scales of cosine attention, tokens and tables of positions have no
    weight decay.

    Args:
        optim_wrapper_cfg: the optimizer's wrapper.
        paramwise_cfg: ``layer_decay_rate`` in (0, 1]; ``num_layers``, which must be the
            backbone's number of blocks where it is there; and all that mmengine's
            DefaultOptimWrapperConstructor takes. Its ``custom_keys`` and ``*_decay_mult`` stand
            above the rule for weight decay, and its ``lr_mult`` multiplies the rates.

    Raises:
        ValueError: for a rate outside (0, 1], another number of blocks, or a model without a
            backbone that has ``get_layer_depth``, as those here and some of mmpretrain have.

    Differs from mmpretrain's LearningRateDecayOptimWrapperConstructor: the model itself needs no
    ``get_layer_depth``, norms and tables have no weight decay by themselves, ``lr_mult`` works.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict[str, object] | None = None
                 ) -> None:
        paramwise_cfg = dict(paramwise_cfg or {})
        rate = paramwise_cfg.get('layer_decay_rate')
        if not isinstance(rate, (int, float)) or not 0 < rate <= 1:
            raise ValueError(f'paramwise_cfg.layer_decay_rate={rate!r} must be a number above 0 '
                             'and at most 1')
        if (optim_wrapper_cfg.get('optimizer') or {}).get('weight_decay') is not None:
            paramwise_cfg = {**dict.fromkeys(_NO_DECAY, 0.0), **paramwise_cfg}
        super().__init__(optim_wrapper_cfg, paramwise_cfg)

    def __call__(self, model: nn.Module) -> OptimWrapper:
        """Build the wrapper, with one group for each parameter and its rate."""
        model = getattr(model, 'module', model)
        scales = layer_scales(model, self.paramwise_cfg['layer_decay_rate'],
                              self.paramwise_cfg.get('num_layers'))
        wrapper, tables = super().__call__(model), relative_tables(model)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        for group in wrapper.optimizer.param_groups:
            name = names[id(group['params'][0])]
            group['lr'] *= scales[name]
            # A key that names it stands above the rule.
            if self.base_wd is not None and 'decay_mult' not in group and (
                    name in tables or name.endswith(_TABLES)):
                group['weight_decay'] = 0.0
        return wrapper


def layer_scales(model: nn.Module, rate: float, num_layers: int | None = None
                 ) -> dict[str, float]:
    """The factor of each parameter's learning rate, by the parameter's name.

    Args:
        model: with one or more modules named ``backbone`` that have ``get_layer_depth``.
        rate: the learning rate of a layer divided by that of the layer after it.
        num_layers: the number of layers that the backbone must have.

    Raises:
        ValueError: if there is no such backbone, or it has other blocks.
    """
    # A wrapper, such as mmpretrain's LoRAModel, has the methods of its module, whose names differ.
    backbones = {f'{name}.': module for name, module in model.named_modules()
                 if name.removesuffix('.module').rpartition('.')[2] == 'backbone'
                 and hasattr(type(module), 'get_layer_depth')}
    if not backbones:
        raise ValueError(f'layer_decay_rate={rate}: {type(model).__name__} has no backbone with '
                         'get_layer_depth; use one of mmposenc, or a transformer of mmpretrain')
    scales = {name: 1.0 for name, _ in model.named_parameters()}
    for prefix, backbone in backbones.items():
        for name in scales:
            depth, depths = backbone.get_layer_depth(name, prefix)
            if num_layers not in (None, depths - 2):
                raise ValueError(f'paramwise_cfg.num_layers={num_layers}: {prefix[:-1]} has '
                                 f'{depths - 2} blocks; leave num_layers out')
            scales[name] *= rate ** (depths - 1 - depth)
    return scales
