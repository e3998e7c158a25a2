"""Detectors and segmentors of mmdet and mmseg whose results do not depend on the batch."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .extents import KeptOut
from .images import filled_up, image_sizes, own_cells, own_sample, reached_pixels
from .known import unknown_layers
from .layers import derived, put_forms
from .losses import batch_loss, put_loss_forms
from .masked import all_reached, shrunk

#: Parts of a model that map a batch of images to maps.
NETWORKS = ('backbone', 'neck')
#: Heads whose ``forward`` maps maps to maps.
HEADS = ('bbox_head', 'rpn_head', 'mask_head', 'decode_head', 'auxiliary_head')
#: Heads that enlarge maps by whole factors: they take what mmdet pads an image alone to.
_WHOLE = ('SOLOHead', 'SOLOV2Head')
#: What takes the place of a transformer, which padding can not be kept out of from outside.
_OURS = {'SwinTransformer': 'Swin', 'SwinTransformerV2': 'Swin', 'PyramidVisionTransformer': 'PVT',
         'VisionTransformer': 'ViT', 'BEiT': 'ViT', 'BEiTViT': 'ViT'}
#: What a prediction says of its batch.
_OF_BATCH = ('batch_input_shape', 'pad_shape', 'padding_size', 'img_padding_size', 'img_shape')


def keep_padding_out(model: nn.Module) -> nn.Module:
    """Make predictions of each image of a batch those of the image alone, and losses those of the
    batch without padding.

    Backbone and neck see the whole batch, with padding kept out of their layers
    (:class:`~mmposenc.padding.KeptOut`); from there on, each image's maps, cut to its own cells, go
    through the head and the post-processing by themselves. So no anchor, point or query lies in
    padding, and any head of mmdet or mmseg works. The loss is the model's own, of the batch
    (:mod:`~mmposenc.padding.losses`). BatchNorm that trains takes statistics over the valid cells
    of the batch, in heads too. Weights and their names stay.

    Args:
        model: a detector of mmdet or a segmentor of mmseg, changed in place.

    Returns:
        The model.

    Raises:
        ValueError: for a layer of its backbone or neck that may read padding, or a backbone of this
            project with ``mask_padding=False``.
    """
    if isinstance(model, PaddingFree):
        return model
    needed = ('extract_feat', 'loss', 'predict')
    if not all(callable(getattr(model, name, None)) for name in needed):
        raise ValueError(f'{type(model).__name__} is no detector of mmdet and no segmentor of '
                         f'mmseg: it needs {", ".join(needed)}')
    for part in parts(model, NETWORKS):
        _check(part)
    for head in _norm_heads(model):
        _check(head)
        note_maps(head)
    put_forms(model)
    put_loss_forms(model)
    for part in parts(model, NETWORKS[:1]):
        if hasattr(part, 'mask_padding'):
            part.__class__ = derived(Backbone, type(part))
    model.__class__ = derived(PaddingFree, type(model))
    return model


class PaddingFree:
    """What :func:`keep_padding_out` puts in front of a model's class."""

    #: What :func:`.compiled.compile_networks` makes of its networks.
    compiled: Any = None

    def loss(self, batch_inputs: Tensor, batch_data_samples: list[Any]) -> dict[str, Any]:
        """The model's own, over the cells of the images alone (:mod:`.losses`)."""
        whole = tuple(batch_inputs.shape[-2:])
        if self.compiled is None and all(
                size == whole for size in image_sizes(batch_inputs, batch_data_samples)):
            return super().loss(batch_inputs, batch_data_samples)  # type: ignore[misc, no-any-return]
        return batch_loss(self, super().loss, list(  # type: ignore[misc]
            self._images(batch_inputs, batch_data_samples, targets=True)))

    def predict(self, batch_inputs: Tensor, batch_data_samples: list[Any], *args: Any,
                **kwargs: Any) -> list[Any]:
        """Predictions of each image alone."""
        found = []
        for image, sample in self._images(batch_inputs, batch_data_samples, targets=False):
            found += super().predict(image, [sample], *args, **kwargs)  # type: ignore[misc]
        for result, sample in zip(found, batch_data_samples, strict=True):
            result.set_metainfo({key: value for key, value in sample.metainfo.items()
                                 if key in _OF_BATCH})
        return found

    def extract_feat(self, batch_inputs: Tensor) -> Any:
        """The maps noted on an image; without a note, as the model's."""
        noted = getattr(batch_inputs, 'own_maps', None)
        return super().extract_feat(batch_inputs) if noted is None else noted  # type: ignore[misc]

    def _images(self, batch: Tensor, samples: list[Any], *, targets: bool
                ) -> Iterator[tuple[Tensor, Any]]:
        """Each image as a batch of one, with its maps noted on it, and its sample."""
        model: Any = self
        images = image_sizes(batch, samples)
        segments = hasattr(model, 'decode_head')
        if segments and not targets and model.test_cfg.get('mode') == 'slide':
            for i, size in enumerate(images):  # windows are each image's own
                yield (batch[i:i + 1, :, :size[0], :size[1]],
                       own_sample(samples[i], size, targets=False))
            return
        if self.compiled is not None:
            batch = self.compiled.filled_up(batch)
        full = (batch.shape[-2], batch.shape[-1])
        # One graph for all batches: where nothing is padding it is not left out.
        keeps = self.compiled is not None or any(image != full for image in images)
        kept = KeptOut(images, full) if keeps else None
        maps, heads = self._maps(batch, kept)
        divisor = model.data_preprocessor.pad_size_divisor if _takes_whole(model) else None
        for i, image in enumerate(images):
            size = image if segments else reached_pixels(image, full, maps[0])
            alone = batch[i:i + 1, :, :size[0], :size[1]]
            mine: list[Any] = (own_cells(list(maps), i, kept) if divisor is None or kept is None
                               else filled_up(maps, i, kept, divisor))
            if heads:
                mine[0].head_maps = {key: own_cells(outs, i, kept) for key, outs in heads.items()}
            alone.own_maps = tuple(mine)  # type: ignore[attr-defined]
            yield alone, own_sample(samples[i], size, targets=targets)

    def _maps(self, batch: Tensor, kept: KeptOut | None
              ) -> tuple[Sequence[Tensor], dict[int, Any]]:
        """What ``extract_feat`` gives for the batch; and, by the head's id, maps of the heads that
        see the batch: those whose BatchNorms train, and those that are compiled."""
        model: Any = self
        given = None
        if kept is not None and hasattr(model.backbone, 'mask_padding'):
            given = model.backbone(batch, img_shapes=kept.images)  # keeps padding out by itself
            for level, side in zip(given, model.backbone.strides, strict=True):
                kept.note(level, all_reached(kept.images, shrunk(side)))
        if self.compiled is not None and kept is not None:
            return self.compiled(self, batch, batch if given is None else given, kept)
        heads = [head for head in _norm_heads(model)
                 if any(isinstance(m, _BatchNorm) and m.training for m in head.modules())]
        with kept or nullcontext():
            batch = batch[:]
            batch.given = given  # type: ignore[attr-defined]
            maps = self.network_maps(batch)
            return maps, {id(head): head(maps) for head in heads}

    def network_maps(self, inputs: Any) -> Sequence[Tensor]:
        """What ``extract_feat`` gives, of a batch, or of maps that its backbone gave."""
        return super().extract_feat(inputs)  # type: ignore[misc, no-any-return]


class Backbone:
    """What :func:`keep_padding_out` puts in front of a backbone that masks padding."""

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The maps that it gave for a batch, noted on it or in its place; else as the backbone's.
        """
        given = getattr(x, 'given', None) if isinstance(x, Tensor) else x
        return super().forward(x, *args, **kwargs) if given is None else given  # type: ignore[misc]


class MapHead:
    """What :func:`keep_padding_out` puts in front of the class of a head with BatchNorms."""

    def forward(self, maps: Any, *args: Any, **kwargs: Any) -> Any:
        """The head's own maps where they are noted on what it gets; else as the head's."""
        noted = getattr(maps[0], 'head_maps', {})
        return noted[id(self)] if id(self) in noted else (
            super().forward(maps, *args, **kwargs))  # type: ignore[misc]


def note_maps(head: nn.Module) -> None:
    """Put :class:`MapHead` in front of a head's class, in place."""
    if not isinstance(head, MapHead):
        head.__class__ = derived(MapHead, type(head))


def parts(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """Modules of these names; those of a list one by one."""
    found = [getattr(model, name, None) for name in names]
    return [part for value in found if isinstance(value, nn.Module)
            for part in (value if isinstance(value, nn.ModuleList) else [value])]


def _norm_heads(model: nn.Module) -> list[nn.Module]:
    """Heads with a BatchNorm, whose statistics are the batch's."""
    return [head for head in parts(model, HEADS)
            if any(isinstance(module, _BatchNorm) for module in head.modules())]


def _takes_whole(model: nn.Module) -> bool:
    return any(base.__name__ in _WHOLE for head in parts(model, HEADS)
               for base in type(head).__mro__)


def _check(network: nn.Module) -> None:
    name = type(network).__name__
    if hasattr(network, 'mask_padding'):
        if not network.mask_padding:
            raise ValueError(f'{name} has mask_padding=False; set mask_padding=True')
        return
    if name in _OURS:
        raise ValueError(f'{name} reads padding in its attention, which is not ours to change; '
                         f'take mmposenc.{_OURS[name]} with mask_padding=True in its place')
    if unknown := unknown_layers(network, losses_of(network)):
        raise ValueError(f'{name} has layers that may read padding: {", ".join(unknown[:5])}'
                         f'{" ..." if len(unknown) > 5 else ""}; it can not be kept out of them')


def losses_of(network: nn.Module) -> list[nn.Module]:
    """Modules of a head that see no map."""
    return [part for key, part in network.named_modules()
            if key.rpartition('.')[2].startswith('loss')]

