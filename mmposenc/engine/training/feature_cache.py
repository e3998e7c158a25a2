"""Trains heads on features of a frozen backbone, which are computed once and stored in a folder."""
from __future__ import annotations

import copy
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import Runner
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import mmposenc
from mmposenc.checkpoint.integrity import writing_whole_file
from mmposenc.checkpoint.rules import names_text
from mmposenc.config_types import ReadOnlyConfig
from mmposenc.functional.image_sizes import checked_one_batch, set_img_shapes

from ..config.checks import check_writable_folder
from ..config.nodes import find_or_add_custom_hook
from .processes import unwrapped_model


class FeatureStore:
    """Features in bfloat16, by two hashes: of the weights that made them and of the image.

    A damaged file is written again. Features that find no room or cannot be written (a full disk)
    are not stored, and a warning gives the first reason. No file can run code (safetensors).

    Args:
        folder: made when it is not there.
        max_gb: the folder's largest size, in 10^9 bytes; the processes of a training share the
            room. Nothing is deleted to make room.

    Raises:
        ValueError: for a folder that is a file, or a link that leads nowhere.
    """

    def __init__(self, folder: str | Path, max_gb: float) -> None:
        self.folder, self.max_gb = Path(folder).expanduser(), max_gb
        check_writable_folder(str(self.folder), 'folder of kept features')
        self.folder.mkdir(parents=True, exist_ok=True)
        used = sum(path.lstat().st_size for path in self.folder.rglob('*.safetensors'))
        #: The number of bytes that this process may still write.
        self.room = (int(max_gb * 10 ** 9) - used) // get_world_size()
        #: How many features were read, were written, and were not stored.
        self.counts = {'read': 0, 'written': 0, 'not stored': 0}

    def read(self, name: str) -> list[Tensor] | None:
        """The features that were written under this name, or None."""
        try:
            tensors = load_file(self.folder / f'{name}.safetensors')
        except (SafetensorError, OSError, ValueError):  # There is none, or it is damaged.
            return None
        self.counts['read'] += 1
        return [tensors[name] for name in sorted(tensors)]

    def write(self, name: str, tensors: Sequence[Tensor]) -> None:
        """Store features, unless the folder is full.

        Args:
            name: 'WEIGHTS/IMAGE', two hexadecimal hashes.
            tensors: at most 100, of any shapes; stored in bfloat16.
        """
        named = {f'{i:02d}': tensor.detach().to('cpu', torch.bfloat16).contiguous()
                 for i, tensor in enumerate(tensors)}
        # A file has a header of up to 128 bytes for each tensor.
        size = sum(tensor.nbytes + 128 for tensor in named.values())
        path = self.folder / f'{name}.safetensors'
        try:
            if size > self.room:
                raise OSError(f'max_gb={self.max_gb:g} is too little for all features; raise it, '
                              'take fewer views, or delete folders of other weights')
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not durable, because what a power cut damages is computed again.
            with writing_whole_file(path, durable=False) as partial:
                save_file(named, partial)
        except (SafetensorError, OSError) as error:
            if not self.counts['not stored']:
                print_log(f'{path}: {error}; training continues, and computes features that are '
                          'not stored each time', 'current', logging.WARNING)
            self.counts['not stored'] += 1
            return
        self.room -= size
        self.counts['written'] += 1


def hash_tensors(tensors: Mapping[str, Tensor], words: str = '') -> str:
    """The SHA-256 of tensors' names, types, shapes and values, in hexadecimal.

    Args:
        tensors: on any device, in any order.
        words: text that counts too.
    """
    digest = hashlib.sha256(words.encode())
    for name in sorted(tensors):
        plain = tensors[name].detach().cpu().contiguous()
        digest.update(f'{name} {plain.dtype} {tuple(plain.shape)}'.encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


class FeatureCacheHook(Hook):
    """Lets the frozen backbone of a model read its features from a folder while training.

    Features are stored under the pixels that reach the backbone, so any pipeline, detector or
    segmentor works, and an image that is not in the folder is computed and put there. Validation
    and tests run the backbone itself. In a config of :mod:`mmposenc.engine`, the images of the
    training set are cut and coloured in ``views`` ways (:class:`~.seeding.FewViews`).

    Args:
        folder: of the features, for any number of models.
        max_gb: the folder's largest size, in 10^9 bytes; beyond it features are computed each time.
        views: ways in which an image of the training set is augmented.

    Raises:
        ValueError: for no room; when training begins: the backbone trains, or there is
            none.
    """

    store: FeatureStore

    def __init__(self, folder: str = 'work_dirs/features', max_gb: float = 20.0,
                 views: int = 4) -> None:
        if max_gb <= 0:
            raise ValueError(f'max_gb={max_gb} must be positive')
        self.folder, self.views, self.max_gb = folder, views, max_gb

    def before_train(self, runner: Runner) -> None:
        """Put the folder between the model and its backbone."""
        model = unwrapped_model(runner.model)
        backbone = getattr(model, 'backbone', None)
        if not isinstance(backbone, nn.Module):
            raise ValueError(f'{type(model).__name__} has no backbone to keep features of')
        # Not created before, because a config is tested with its hooks, and then needs no folder.
        self.store = FeatureStore(self.folder, self.max_gb)
        settings = (runner.cfg.get('model') or {}).get('backbone')
        backbone.forward = CachedForward(backbone, self.store, settings)
        runner.logger.info('Features of the frozen backbone are kept in '
                           f'{self.folder}/{backbone.forward.weights}')

    def after_train(self, runner: Runner) -> None:
        """Remove the folder from the model, and log how many features were read."""
        del unwrapped_model(runner.model).backbone.forward
        counts = ', '.join(f'{count} {what}' for what, count in self.store.counts.items())
        runner.logger.info(f'Features in {self.folder}: {counts}')


class CachedForward:
    """In place of a frozen backbone's forward: reads what the store has, computes the rest.

    Features are computed in bfloat16 and evaluation mode, an image at a time on its own extent
    where the backbone masks padding (then they are those it has in any batch) and with its padding
    where it does not.

    Args:
        backbone: every parameter must be frozen; returns a tensor or several.
        store: where features are read and written.
        settings: the backbone's config, which counts as its weights do, except ``init_cfg``.

    Raises:
        ValueError: names parameters that are trained.
    """

    def __init__(self, backbone: nn.Module, store: FeatureStore,
                 settings: ReadOnlyConfig | None = None) -> None:
        trained = [name for name, value in backbone.named_parameters() if value.requires_grad]
        if trained:
            raise ValueError(
                f'the backbone trains {len(trained)} of its parameters ({names_text(trained)}), so '
                'its features change and cannot be kept; freeze all of it (frozen_stages, and '
                'final_norm=False for a trained last norm), or train without the cache')
        self.backbone, self.store, self.compute = backbone, store, backbone.forward
        self.masks = bool(getattr(backbone, 'mask_padding', False))
        options = {key: value for key, value in (settings or {}).items() if key != 'init_cfg'}
        self.weights = hash_tensors(backbone.state_dict(), json.dumps(
            [type(backbone).__name__, mmposenc.__version__, options], sort_keys=True,
            default=str))[:32]
        #: A copy on the meta device, which gives the shapes of features without computing them.
        self.on_meta = copy.deepcopy(backbone).to('meta').eval() if self.masks else None

    def __call__(self, x: Tensor, *args: object, **kwargs: object) -> Tensor | tuple[Tensor, ...]:
        """The features of a batch (B, C, H, W) in the form in which the backbone returns them."""
        if not self.backbone.training or args or kwargs:
            return self.compute(x, *args, **kwargs)
        full_hw = (checked_one_batch(x).shape[-2], x.shape[-1])
        sizes = getattr(x, 'img_shapes', None) if self.masks else None
        extents = [(int(s[0]), int(s[1])) for s in sizes] if sizes else [full_hw] * len(x)
        images = [self._features_of_image(image[None, :, :height, :width])
                  for image, (height, width) in zip(x, extents, strict=True)]
        if any(extent != full_hw for extent in extents):
            with torch.no_grad():
                outs = _as_sequence(self.on_meta(set_img_shapes(x[:1].to('meta'), [full_hw])))
            images = [list(map(_zero_padded, image, outs)) for image in images]
        return tuple(torch.stack(maps).to(x) for maps in zip(*images, strict=True))

    def _features_of_image(self, image: Tensor) -> Sequence[Tensor]:
        """The features of one image (1, C, H, W), without the batch dimension."""
        # Made contiguous, because strides may change the last bit of a convolution.
        image = image.contiguous()
        name = f'{self.weights}/{hash_tensors({"": image})}'
        features = self.store.read(name)
        if features is None:
            self.backbone.eval()
            with torch.no_grad(), torch.autocast(image.device.type, torch.bfloat16):
                outs = _as_sequence(self.compute(set_img_shapes(image, [image.shape[-2:]])))
            self.backbone.train()
            features = [each[0].bfloat16() for each in outs]
            self.store.write(name, features)
        return [each.to(image.device) for each in features]


def repeat_with_few_views(cfg: Config) -> None:
    """Wrap the training set of a config with this hook so that it has the hook's number of views.
    The config is changed."""
    hook = find_or_add_custom_hook(cfg, 'mmposenc.FeatureCacheHook', add=False)
    if hook is None:
        return
    parent = cfg.train_dataloader
    while isinstance(parent.dataset.get('dataset'), dict):
        parent = parent.dataset
    if 'FewViews' not in str(parent.get('type')):
        views = hook.get('views', 4)
        parent.dataset = dict(type='mmposenc.FewViews', views=views, dataset=parent.dataset)


def _as_sequence(outs: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    return (outs,) if isinstance(outs, Tensor) else outs


def _zero_padded(features: Tensor, padded: Tensor) -> Tensor:
    """Pad a map (C, H, W) with zeros to the right and below, to the size of another; a vector is
    returned as it is."""
    if features.dim() == 1:
        return features
    height, width = features.shape[-2:]
    return F.pad(features, (0, padded.shape[-1] - width, 0, padded.shape[-2] - height))
