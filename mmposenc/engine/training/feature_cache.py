"""Heads trained on features of a frozen backbone, which are computed once and kept in a folder."""
from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.logging import print_log
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import mmposenc
from mmposenc.functional.image_sizes import one_batch, set_img_shapes

from ..config.checks import check_folder
from ..config.nodes import custom_hook
from ..console import Bar
from .processes import plain_model

#: How many writes may pass before the folder is measured again: other processes write to it too.
_MEASURED_EVERY = 64


class FeatureStore:
    """Features in bfloat16, by two hashes: of the weights that made them and of the image.

    A file is read only if it says both hashes and its checksum is that of these and its tensors;
    any other (damaged, cut short, renamed, of other weights) is ignored and written again. Features
    that can't be written (a full disk, a folder in place of a file) are not kept, and a warning
    gives the first reason. Nothing that is read can run code (safetensors).

    Args:
        folder: made when it is not there.
        max_bytes: files are written while all of the folder stays below it (several processes
            may pass it by a few files). Nothing is deleted to make room.

    Raises:
        ValueError: for a folder that is a file, or a link that leads nowhere.
    """

    def __init__(self, folder: str | Path, max_bytes: int) -> None:
        self.folder = Path(folder).expanduser()
        check_folder(str(self.folder), 'folder of kept features')
        self.folder.mkdir(parents=True, exist_ok=True)
        self.max_bytes = max_bytes
        self.used_bytes = self._measured()
        #: How many features were read, damaged, written, or not kept.
        self.counts = dict.fromkeys(('read', 'damaged', 'written', 'no room', 'not kept'), 0)

    def path(self, weights: str, image: str) -> Path:
        """Where features lie."""
        return self.folder / weights[:16] / image[:2] / f'{image[:32]}.safetensors'

    def read(self, weights: str, image: str) -> list[Tensor] | None:
        """The features that ``weights`` made of ``image``, or None."""
        path = self.path(weights, image)
        if not os.path.isfile(path):
            return None
        try:
            with safe_open(path, framework='pt') as file:
                about = file.metadata() or {}
                tensors = [file.get_tensor(name) for name in sorted(file.keys())]
        except (SafetensorError, OSError, ValueError):
            about, tensors = {}, []
        if about == _about(weights, image, tensors):
            self.counts['read'] += 1
            return tensors
        self.counts['damaged'] += 1
        return None

    def write(self, weights: str, image: str, tensors: Sequence[Tensor]) -> None:
        """Keep features, unless the folder is full.

        Args:
            weights, image: hexadecimal hashes.
            tensors: at most 100, of any shapes; kept in bfloat16.
        """
        kept = [tensor.detach().to('cpu', torch.bfloat16).contiguous() for tensor in tensors]
        path = self.path(weights, image)
        old = _size(path)
        new = sum(tensor.nbytes for tensor in kept) + 1024 + 128 * len(kept)  # and the header
        if sum(self.counts.values()) % _MEASURED_EVERY == 0:
            self.used_bytes = self._measured()
        if self.used_bytes - old + new > self.max_bytes:
            self.counts['no room'] += 1
            return
        partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file({f'{i:02d}': tensor for i, tensor in enumerate(kept)}, partial,
                      _about(weights, image, kept))
            # No flush to the disk: what a power cut damages is computed again.
            os.replace(partial, path)
        except (SafetensorError, OSError) as error:
            if not self.counts['not kept']:
                print_log(f'{path}: {error}; training continues, and computes features that cannot '
                          'be kept each time', 'current', logging.WARNING)
            self.counts['not kept'] += 1
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            return
        self.used_bytes += _size(path) - old
        self.counts['written'] += 1

    def _measured(self) -> int:
        """Bytes of all files, including those that a killed process left half written."""
        return sum(_size(Path(folder, name)) for folder, _, names in os.walk(self.folder)
                   for name in names)


def _size(path: Path) -> int:
    """Bytes of a file, or of a link itself; 0 if there is none, or it was just removed."""
    try:
        about = path.lstat()
    except OSError:
        return 0
    return 0 if stat.S_ISDIR(about.st_mode) else about.st_size


def hash_tensors(tensors: Iterable[Tensor], *more: str) -> str:
    """SHA-256 of tensors' types, shapes and values, in hexadecimal.

    Args:
        tensors: on any device.
        more: further words that count.
    """
    digest = hashlib.sha256(repr(more).encode())
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f'{plain.dtype} {tuple(plain.shape)}'.encode())
        if plain.numel():
            digest.update(memoryview(plain.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def hash_weights(state_dict: Mapping[str, Tensor], *more: str) -> str:
    """SHA-256 of a state dict, names included; ``more`` as in :func:`hash_tensors`."""
    names = sorted(state_dict)
    return hash_tensors((state_dict[name] for name in names), *names, *more)


def _about(weights: str, image: str, tensors: Sequence[Tensor]) -> dict[str, str]:
    """The metadata of a file."""
    return {'weights': weights, 'image': image,
            'checksum': hash_tensors(tensors, weights, image)}


GIGABYTE = 10 ** 9


class FeatureCacheHook(Hook):
    """Lets the frozen backbone of a model read its features from a folder while training.

    What is kept is keyed by the pixels that reach the backbone, so any pipeline, detector or
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

    def before_train(self, runner: Any) -> None:
        """Put the folder between the model and its backbone."""
        cached = self.attach(runner.model, (runner.cfg.get('model') or {}).get('backbone'))
        runner.logger.info(f'Features of the frozen backbone are kept in {self.folder} '
                           f'(weights {cached.weights[:16]})')

    def after_train(self, runner: Any) -> None:
        """Take it away, and say what it was good for."""
        self.detach(runner.model)
        counts = ', '.join(f'{count} {what}' for what, count in self.store.counts.items())
        runner.logger.info(f'Features in {self.folder}: {counts}')
        self.warn(runner)

    def warn(self, runner: Any) -> None:
        """Say so if the folder was too small."""
        if self.store.counts['no room']:
            runner.logger.warning(
                f'max_gb={self.max_gb:g} was too little for all features; raise it, take fewer '
                f'views, or delete folders of other weights in {self.folder}')

    def attach(self, model: nn.Module, settings: Any = None) -> CachedFeatures:
        """Let the backbone of a model read from the folder.

        Args:
            model: has ``backbone``.
            settings: the backbone's config, which counts as its weights do.
        """
        plain = plain_model(model)
        backbone = getattr(plain, 'backbone', None)
        if not isinstance(backbone, nn.Module):
            raise ValueError(f'{type(plain).__name__} has no backbone to keep features of')
        # Not before: a config is tested with its hooks, and needs no folder then.
        self.store = FeatureStore(self.folder, int(self.max_gb * GIGABYTE))
        cached = CachedFeatures(backbone, self.store, settings)
        backbone.forward = cached  # type: ignore[method-assign]
        return cached

    def detach(self, model: nn.Module) -> None:
        """Undo :meth:`attach`."""
        plain = plain_model(model)
        vars(plain.backbone).pop('forward', None)


class CachedFeatures:
    """In place of a frozen backbone's forward: reads what the store has, computes the rest.

    Features are computed in bfloat16 and evaluation mode, an image at a time on its own extent
    where the backbone masks padding (then they are those it has in any batch) and with its padding
    where it does not.

    Args:
        backbone: every parameter must be frozen; returns a tensor or several.
        store: where features are kept.
        settings: the backbone's config; ``init_cfg`` does not count.

    Raises:
        ValueError: names parameters that are trained.
    """

    def __init__(self, backbone: nn.Module, store: FeatureStore, settings: Any = None) -> None:
        trained = [name for name, value in backbone.named_parameters() if value.requires_grad]
        if trained:
            shown = ', '.join(trained[:4]) + (', ...' if len(trained) > 4 else '')
            raise ValueError(
                f'the backbone trains {len(trained)} of its parameters ({shown}), so its features '
                'change and cannot be kept; freeze all of it (frozen_stages, and final_norm=False '
                'where the last norm would be trained), or train without the cache')
        self.backbone, self.store = backbone, store
        self.compute = backbone.forward
        self.masks = bool(getattr(backbone, 'mask_padding', False))
        self.weights = hash_weights(backbone.state_dict(), type(backbone).__name__,
                                    _settings(settings), mmposenc.__version__)
        self.grids: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self.on_meta: nn.Module | None = None

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The features of a batch (B, C, H, W), as the backbone returns them."""
        if not self.backbone.training or args or kwargs:
            return self.compute(x, *args, **kwargs)
        full_hw = (one_batch(x).shape[-2], x.shape[-1])
        noted = getattr(x, 'img_shapes', None) if self.masks else None
        extents = [(int(s[0]), int(s[1])) for s in noted] if noted else [full_hw] * len(x)
        images = [self._features(image[None, :, :height, :width])
                  for image, (height, width) in zip(x, extents, strict=True)]
        if any(extent != full_hw for extent in extents):
            images = [_pad(each, self._shapes(full_hw, x.shape[1])) for each in images]
        return tuple(torch.stack(maps).to(x) for maps in zip(*images, strict=True))

    def _features(self, image: Tensor) -> list[Tensor]:
        """Features of one image (1, C, H, W), without the batch dimension."""
        image = image.contiguous()  # strides may change the last bit of a convolution
        key = hash_tensors([image])
        found = self.store.read(self.weights, key)
        if found is None:
            with torch.no_grad(), torch.autocast(image.device.type, torch.bfloat16):
                found = [each[0].bfloat16() for each in self._run(self.compute, image)]
            self.store.write(self.weights, key, found)
        return [each.to(image.device) for each in found]

    def _run(self, compute: Callable[..., Any], image: Tensor) -> Sequence[Tensor]:
        """The backbone in evaluation mode; only its flag matters, what is frozen keeps its own."""
        was_training = [module for module in self.backbone.modules() if module.training]
        self.backbone.eval()
        try:
            if self.masks:
                image = set_img_shapes(image, [image.shape[-2:]])
            outs = compute(image)
        finally:
            for module in was_training:
                module.training = True
        return _tensors(outs)

    def _shapes(self, hw_shape: tuple[int, int], channels: int) -> list[tuple[int, ...]]:
        """Shapes of the features of an image that fills a batch; nothing is computed."""
        if hw_shape not in self.grids:
            if self.on_meta is None:
                clone = copy.copy(self.backbone)
                vars(clone).pop('forward', None)
                self.on_meta = copy.deepcopy(clone).to('meta').eval()
            image = torch.empty(1, channels, *hw_shape, device='meta')
            with torch.no_grad():
                outs = _tensors(self.on_meta(set_img_shapes(image, [hw_shape])))
            self.grids[hw_shape] = [tuple(each.shape[1:]) for each in outs]
        return self.grids[hw_shape]


def use_feature_cache(cfg: Config, folder: str | None = None) -> None:
    """Put the hook into a config, as ``--feature-cache`` asks for it, and give its training set the
    hook's number of views; a hook that is there keeps its options.

    Args:
        cfg: changed in place. Without the hook and without ``folder`` nothing is.
        folder: of the features.
    """
    hook = custom_hook(cfg, 'mmposenc.FeatureCacheHook', add=folder is not None)
    if hook is None:
        return
    if folder is not None:
        hook['folder'] = folder
    parent = cfg.train_dataloader
    while isinstance(parent.dataset.get('dataset'), dict):
        parent = parent.dataset
    if 'FewViews' not in str(parent.get('type')):
        views = hook.get('views', 4)
        parent.dataset = dict(type='mmposenc.FewViews', views=views, dataset=parent.dataset)


def fill(runner: Any, say: Callable[[str], None] = print) -> dict[str, int]:
    """Compute the features of all views of a training set.

    Args:
        runner: of a config with the hook, see :func:`use_feature_cache`; it trains nothing.
        say: takes a line every ten seconds, where no bar is drawn in a terminal.

    Returns:
        What became of the features.

    Raises:
        ValueError: for a config without the hook; or the backbone trains, or there is none.
    """
    hook = next((each for each in runner.hooks if isinstance(each, FeatureCacheHook)), None)
    if hook is None:
        raise ValueError('the config has no mmposenc.FeatureCacheHook in custom_hooks; name a '
                         'folder for the features')
    dataset = runner.train_dataloader.dataset
    while not hasattr(dataset, 'views'):
        dataset = dataset.dataset
    runner._init_model_weights()
    runner.load_or_resume()
    model = runner.model.train()
    hook.attach(model, runner.cfg.model.get('backbone'))
    total = len(dataset) * dataset.views
    say(f'features of {type(model.backbone).__name__} for {len(dataset)} images, {dataset.views} '
        f'views of each, to {hook.folder}; log in {runner.logger.log_file}')
    with closing(Bar(say=say)) as bar:
        bar.begin('views', total, logger=runner.logger)
        for done in range(total):
            sample = dataset.view(*divmod(done, dataset.views))
            model.backbone(model.data_preprocessor(pseudo_collate([sample]), True)['inputs'])
            bar.advance('views', done + 1,
                        f'of {total}, {hook.store.used_bytes / GIGABYTE:.2f} GB')
    hook.detach(model)
    hook.warn(runner)
    return hook.store.counts


def _settings(settings: Any) -> str:
    kept = {key: value for key, value in (settings or {}).items() if key != 'init_cfg'}
    return json.dumps(kept, sort_keys=True, default=str)


def _tensors(outs: Any) -> Sequence[Tensor]:
    outs = (outs,) if isinstance(outs, Tensor) else outs
    if not all(isinstance(each, Tensor) for each in outs):
        raise ValueError('the backbone returns something else than tensors, which cannot be kept')
    return tuple(outs)


def _pad(maps: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Maps (C, H, W) with zeros to the right and below."""
    return [F.pad(each, (0, shape[-1] - each.shape[-1], 0, shape[-2] - each.shape[-2]))
            if each.dim() == 3 else each for each, shape in zip(maps, shapes, strict=True)]
