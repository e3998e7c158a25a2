"""ResNet with ContextPool instead of max pooling and strides."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmpretrain.models.backbones.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from ...backbones.optional_mmengine import is_pretrained
from ...encodings.base import TokenEncoding, reset_encodings
from ...encodings.build import EncodingConfig, build_encoding
from ...functional.masking import map_to_tokens, tokens_to_map

#: The numbers of blocks in the stages of the ResNets for CIFAR with 6 n + 2 layers; 46 has one
#: block more.
SMALL = {20: (3, 3, 3), 32: (5, 5, 5), 44: (7, 7, 7), 46: (7, 8, 7), 56: (9, 9, 9)}

CONTEXT_POOL = dict(type='mmposenc.ContextPool', ratio=0.05)


class CPResNet(ResNet):
    """ResNet (He et al., CVPR 2016) with ContextPool instead of pooling (Huang et al., ICML 2022,
    App. A, Eq. 6): each cell becomes a mean over a neighbourhood of learned size, then every second
    cell is kept.

    It replaces the max pooling of the stem, and the stride of each later stage, whose first block
    then has stride 1. Parameters have the names of mmpretrain's, mmdet's and torchvision's ResNets.

    Args:
        depth: 18, 34, 50, 101 or 152 as in mmpretrain; 20, 32, 44, 46 or 56 for small images, with
            a 3 x 3 stem without pooling and three stages of 16, 32 and 64 channels.
        context_pool: config of the TokenEncoding, by default ContextPool with ratio 0.05;
            ``embed_dims`` and ``stride`` are added. None gives mmpretrain's ResNet.
        pool_at: where to pool: 0 is the max pooling of the stem, i the stride of stage i (counted
            from 0); None is everywhere. Detectors have large maps; (1, 2, 3) leaves out the
            slowest one.
        kwargs: arguments of mmpretrain's ResNet (``out_indices``, ``frozen_stages``, ...).

    Raises:
        ValueError: an unknown depth, or a place in ``pool_at`` that has no pooling or stride.

    There is no release. This project decided that strides count as pooling, and that 46 layers have
    their additional block in the second stage, which matches the paper's number of parameters
    (docs/context_pool.md). Batch padding is not masked; ResNet's convolutions do not mask it
    either.
    """

    structure = ('pool_at',)
    arch_settings = {**ResNet.arch_settings,
                     **{depth: (BasicBlock, blocks) for depth, blocks in SMALL.items()}}

    def __init__(self, depth: int, *, context_pool: EncodingConfig | None = CONTEXT_POOL,
                 pool_at: Sequence[int] | None = None, **kwargs: Any) -> None:
        if depth not in self.arch_settings:
            raise ValueError(f'depth={depth} must be one of {sorted(self.arch_settings)}')
        self.small_images = depth in SMALL
        if self.small_images:
            kwargs = {**dict(num_stages=3, strides=(1, 2, 2), dilations=(1, 1, 1),
                             out_indices=(2,), stem_channels=16, base_channels=16), **kwargs}
        strides = tuple(kwargs.pop('strides', (1, 2, 2, 2)))
        pooled = _pooled_stages(context_pool, pool_at, strides, self.small_images)
        super().__init__(depth, strides=tuple(
            1 if stage in pooled else stride for stage, stride in enumerate(strides)), **kwargs)
        self.context_pools = nn.ModuleDict()
        for stage in pooled:
            channels = (self.stem_channels if stage == 0
                        else self.base_channels * self.expansion * 2 ** (stage - 1))
            self.context_pools[str(stage)] = build_encoding(
                context_pool, TokenEncoding,  # type: ignore[type-abstract]
                'context_pool', embed_dims=int(channels), stride=strides[stage] if stage else 2)
        self._freeze_stages()

    def _make_stem_layer(self, in_channels: int, base_channels: int) -> None:
        super()._make_stem_layer(in_channels, base_channels)
        if self.small_images:
            self.conv1 = nn.Conv2d(in_channels, base_channels, 3, padding=1, bias=False)
            self.maxpool = nn.Identity()

    def init_weights(self) -> None:
        """Initialise as in mmpretrain; ContextPool is reset unless weights are loaded."""
        super().init_weights()
        configs = self.init_cfg if isinstance(self.init_cfg, list) else [self.init_cfg]
        if not any(map(is_pretrained, configs)):
            reset_encodings(self.context_pools)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the maps of ``out_indices`` for images (B, in_channels, H, W)."""
        x = self.stem(x) if self.deep_stem else self.relu(self.norm1(self.conv1(x)))
        x = self._pool(x, 0) if '0' in self.context_pools else self.maxpool(x)
        outs = []
        for stage, name in enumerate(self.res_layers):
            if stage and str(stage) in self.context_pools:
                x = self._pool(x, stage)
            x = getattr(self, name)(x)
            if stage in self.out_indices:
                outs.append(x)
        return tuple(outs)

    def _pool(self, x: Tensor, stage: int) -> Tensor:
        pool = self.context_pools[str(stage)]
        hw_shape = (x.shape[2], x.shape[3])
        return tokens_to_map(pool(map_to_tokens(x), hw_shape).contiguous(),
                             pool.out_hw_shape(hw_shape))

    def train(self, mode: bool = True) -> CPResNet:
        """Set training or evaluation mode; frozen stages stay in evaluation mode. (mmpretrain's
        method returns None.)"""
        super().train(mode)
        return self

    def _freeze_stages(self) -> None:
        super()._freeze_stages()
        # The constructor of mmpretrain's class calls this before context_pools exists.
        for stage, pool in getattr(self, 'context_pools', nn.ModuleDict()).items():
            if int(stage) <= self.frozen_stages:
                pool.eval()
                pool.requires_grad_(False)


def _pooled_stages(context_pool: EncodingConfig | None, pool_at: Sequence[int] | None,
                   strides: tuple[int, ...], small_images: bool) -> tuple[int, ...]:
    """The stages before which a map is pooled, numbered as in ``pool_at``.

    Raises:
        ValueError: as in :class:`CPResNet`.
    """
    halved = [stage for stage, stride in enumerate(strides) if stage and stride > 1]
    if not small_images:
        halved = [0, *halved]
    if context_pool is None:
        if pool_at is not None:
            raise ValueError(f'pool_at={tuple(pool_at)} with context_pool=None; leave one out')
        return ()
    if pool_at is None:
        return tuple(halved)
    if not set(pool_at) <= set(halved):
        raise ValueError(f'pool_at={tuple(pool_at)} must be places where a map is halved: '
                         f'{tuple(halved)}')
    return tuple(sorted(set(pool_at)))
