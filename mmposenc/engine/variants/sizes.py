"""Tests or trains a config at other image sizes."""
from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config, ConfigDict

from mmposenc.config_types import ConfigType, ImageSize, ReadOnlyConfig
from mmposenc.engine.config.image_sizes import Size, size_after
from mmposenc.engine.config.nodes import flat_config, type_without_library, typed_parts, value_at
from mmposenc.engine.config.parsed import ParsedConfig

#: Arguments of steps that are numbers of pixels or a factor.
_PIXELS = ('scale', 'scale_factor', 'scales', 'crop_size', 'size', 'max_size', 'width', 'height',
           'img_scale', 'padding', 'random_size_range', 'border')
_SIZING = ('Resize', 'ResizeEdge', 'ResizeShortestEdge', 'FixScaleResize', 'FixShapeResize',
           'CenterCrop', 'Pad', 'EfficientNetCenterCrop')
#: Other steps that set sizes, and parts of data preprocessors.
_TRAINED = ('RandomResize', 'RandomChoiceResize', 'RandomCrop', 'RandomResizedCrop', 'Mosaic',
            'CachedMosaic', 'RandomMosaic', 'MixUp', 'CachedMixUp', 'RandomAffine',
            'RandomCenterCropPad', 'EfficientNetRandomCrop', 'BatchFixedSizePad',
            'BatchSyncRandomResize', 'BatchResize', 'SegDataPreProcessor')
#: The sections of a config in which steps of training, validation and test stand.
_SECTIONS = ('train_dataloader.dataset', 'val_dataloader.dataset', 'test_dataloader.dataset',
             'custom_hooks', 'model.data_preprocessor', 'data_preprocessor')
#: How steps that resize do it, which stays where they stretch an image.
_MANNER = ('interpolation', 'backend', 'clip_object_border')
#: A factor of both sides, or one of the height and one of the width.
_Factor = float | tuple[float, float]


def config_at_size(cfg: Config, size: ImageSize) -> Config:
    """A config whose test gives images of another size.

    A factor multiplies the sizes of the pipeline (a pipeline without any gets a Resize behind its
    loading), windows that slide over an image, and a size to which the data preprocessor pads. With
    a height and a width, every image is stretched to them, also where the pipeline keeps the ratio
    of the sides; what the pipeline crops away, and windows, keep their shares of each side. Padding
    to a multiple stays.

    Label maps and boxes stay as they are, so that predictions are compared at the data set's own
    size. Training and validation stay. Views of ``tta_pipeline`` that are shares of the picture
    become shares of this size; ``--tta`` itself fits views of fixed sizes to the test.

    Args:
        cfg: with a test_dataloader; not changed.
        size: a factor above 0, of which 1 gives a copy, or 'HEIGHTxWIDTH' in pixels.

    Raises:
        ValueError: the pipeline gives images of another height and width in spite of it.
    """
    changed = copy.deepcopy(cfg)
    if size == 1:
        return changed
    pixels, scope, whole = _pixels(size), cfg.get('default_scope'), ParsedConfig(cfg).tested_size
    factor = size if pixels is None else _factors(pixels, whole)
    if cfg.get('test_dataloader'):  # Copied, because validation may share parts of it.
        changed.test_dataloader = copy.deepcopy(cfg.test_dataloader)
    for node in ParsedConfig(changed).data_sets_with_pipeline('test'):
        node['pipeline'] = (_resized_steps(node['pipeline'], factor) if pixels is None
                            else _stretched_steps(node['pipeline'], scope, pixels))
    shares = [(steps, number, step['scale_factor']) for augmented in changed.get('tta_pipeline')
              or () for steps in augmented.get('transforms', ())
              for number, step in enumerate(steps) if step.get('scale_factor') is not None]
    for steps, number, share in shares:
        if pixels is None:
            steps[number]['scale_factor'] = _scaled_numbers(share, factor, whole=False)
        else:
            steps[number] = _stretch(steps[number], _scaled_numbers(pixels[::-1], share)[::-1])
    _resize_model(changed, factor, pixels, whole)
    return changed


def config_trained_at_size(cfg: Config, size: ImageSize) -> tuple[Config, list[str]]:
    """A config whose training, validation and test have images of another size.

    All sizes of their steps, of windows and of the data preprocessor are multiplied by one factor,
    and so is the grid of tables that do not come from a file.

    Args:
        cfg: not changed.
        size: the shorter side of the test's images, or 'HEIGHTxWIDTH' of the config's aspect, in
            pixels.

    Returns:
        The config, and what was changed: 'train_dataloader.dataset.pipeline.2.scale=(320, 240)'.

    Raises:
        ValueError: the config sets no size, or one of another aspect or of an unknown step.
    """
    parsed, changed = ParsedConfig(cfg), copy.deepcopy(cfg)
    whole, option = parsed.tested_size or parsed.trained_size, f'--size {size_word(size)}'
    if whole is None:
        raise ValueError(f'{option}: no step of the config sets a size that can be changed')
    factor = min(_pixels(size) or (float(size),)) / min(whole)
    if _pixels(size) not in (None, _scaled_numbers(whole, factor)):
        raise ValueError(f'{option}: sizes keep the aspect of the config, {whole[0]}x{whole[1]}; '
                         'give the shorter side, such as --size 320')
    parts = {id(part): ('.'.join((key, *path)), part) for key in _SECTIONS
             for path, part in typed_parts(value_at(changed, key))}
    for key, part in parts.values():
        _resize_step(part, factor, f'{option}: {key}')
    if parsed.model:
        _resize_model(changed, factor, None, whole)
    backbone = ParsedConfig(changed).backbone
    said = [f'{key}.{name}={part[name]}' for key, part in parts.values() for name in _PIXELS
            if _is_resized(part, name)]
    if not any(each.startswith('train_dataloader.') for each in said):
        raise ValueError(f'{option}: no step of the training sets a size; add a Resize')
    if backbone.get('img_size') and value_at(backbone, 'init_cfg.type') != 'Pretrained':
        backbone.img_size = _scaled_numbers(backbone.img_size, factor)
        said.append(f'model.backbone.img_size={backbone.img_size}')
    return changed, said


def _is_resized(step: ReadOnlyConfig, name: str) -> bool:
    """Whether an argument of a step, of whatever type, is a number of pixels, or several."""
    value, known = step.get(name), type_without_library(step) in (*_SIZING, *_TRAINED)
    return value is not None and step.get('crop_type', 'absolute').startswith('absolute') and all(
        known or isinstance(each, int) for each in flat_config(value).values())


def _resize_step(step: ConfigType, factor: float, where: str) -> None:
    """Multiply the sizes among the arguments of a step; errors begin with ``where``."""
    kind = type_without_library(step)
    for name in (each for each in _PIXELS if _is_resized(step, each)):
        if kind not in (*_SIZING, *_TRAINED):
            raise ValueError(f'{where}.{name}={step[name]}: it is not known how {kind} changes '
                             'sizes; set them by --cfg-options')
        step[name] = _scaled_numbers(step[name], factor, whole=name != 'scale_factor')


def size_word(size: ImageSize, times: str = '') -> str:
    """A size as it is written behind ``--sizes``, '1.5' or '480x864'; ``times`` follows a factor.
    """
    return size if isinstance(size, str) else f'{size:g}{times}'


def size_order(size: ImageSize) -> tuple[bool, float]:
    """The key by which sizes are sorted: factors, then heights and widths by the number of pixels.
    """
    pixels = _pixels(size)
    return pixels is not None, math.prod(pixels or (float(size),))


def size_at(parsed: ParsedConfig, size: ImageSize) -> Size | None:
    """The size (H, W) of a test's images at a factor of the test's size, or at pixels; None if
    images keep their own sizes."""
    return parsed.tested_size if size == 1 else (
        ParsedConfig(config_at_size(parsed.cfg, size)).tested_size)


def image_sizes(parsed: ParsedConfig, sizes: Sequence[ImageSize], size: Size | None = None
                ) -> dict[ImageSize, Size]:
    """(H, W) of an image of a test at each of some sizes.

    Args:
        parsed: the config.
        sizes: factors of the test's image size, and pixels.
        size: (H, W) of one of its images, where the config does not say it; None: as in training,
            else 224 x 224.
    """
    height, width = parsed.tested_size or size or parsed.trained_size or (224, 224)
    return {each: size_at(parsed, each) or (round(height * each), round(width * each))
            for each in sizes}


def _pixels(size: ImageSize) -> Size | None:
    """The height and width of a size in pixels; None for a factor."""
    if not isinstance(size, str):
        return None
    height, _, width = size.partition('x')
    return int(height), int(width)


def _factors(pixels: Size, whole: Size | None) -> tuple[float, float]:
    return (pixels[0] / whole[0], pixels[1] / whole[1]) if whole else (1.0, 1.0)


def _scaled_numbers(value: Any, factor: _Factor, whole: bool = True) -> Any:
    """Multiply numbers, or pairs and lists of them, by a factor, or pairs (H, W) by one of each.
    Numbers of pixels stay whole; what is no number of pixels stays as it is."""
    if isinstance(value, (list, tuple)):
        factors = factor if isinstance(factor, tuple) else (factor,) * len(value)
        return type(value)(_scaled_numbers(each, by, whole)
                           for each, by in zip(value, factors, strict=True))
    if not whole:
        return value * factor
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    sized = number and value not in (0, -1) and abs(value) < math.inf
    return round(value * factor) or 1 if sized else value


def _resized_steps(steps: Sequence[ReadOnlyConfig], factor: float) -> list[ConfigType]:
    changed = [ConfigDict(copy.deepcopy(dict(step))) for step in steps]
    for step in changed:
        if type_without_library(step) in _SIZING:
            _resize_step(step, factor, 'test_dataloader')
    return _with_resize(changed, scale_factor=float(factor), keep_ratio=True)


def _with_resize(steps: list[ConfigType], **options: object) -> list[ConfigType]:
    """Put a Resize behind the loading of a pipeline that has no step which resizes."""
    # A crop alone would only show more of an image; EfficientNet's resizes what it cuts out.
    names = [type_without_library(step) for step in steps]
    if any(name in _SIZING and ('Resize' in name or 'EfficientNet' in name) for name in names):
        return steps
    index = max((i + 1 for i, name in enumerate(names) if 'LoadImage' in name), default=0)
    steps.insert(index, ConfigDict(type='Resize', **options))
    pack = steps[-1]
    if 'meta_keys' in pack:  # Boxes are scaled back to the image's own size by this factor.
        pack['meta_keys'] = tuple(dict.fromkeys((*pack['meta_keys'], 'scale_factor')))
    return steps


def _stretched_steps(steps: Sequence[ReadOnlyConfig], scope: str | None, pixels: Size
                     ) -> list[ConfigType]:
    """The steps of a pipeline whose images have this height and width at the end."""
    whole, changed = size_after(steps, scope, ratio_kept=True), []
    factors = _factors(pixels, whole)
    for step in (ConfigDict(copy.deepcopy(dict(step))) for step in steps):
        name, size = type_without_library(step), size_after([step], scope, ratio_kept=True)
        target = _scaled_numbers(size, factors) if whole and size else pixels
        if step.get('pad_to_square'):
            continue
        if name in _SIZING and 'Resize' in name:
            step = _stretch(step, target)
        elif name in _SIZING and size:
            step['crop_size' if 'crop_size' in step else 'size'] = target[::-1]
        changed.append(step)
    changed = _with_resize(changed, keep_ratio=False, **(
        dict(scale_factor=factors[::-1]) if whole else dict(scale=pixels[::-1])))
    if size_after(changed, scope) != pixels:
        raise ValueError(f'--sizes {pixels[0]}x{pixels[1]}: a step of the test pipeline gives '
                         'images of another height and width; give factors, such as 1.5')
    return changed


def _stretch(step: ReadOnlyConfig, size: Size) -> ConfigType:
    """The Resize that stretches images to a size (H, W) in the manner of a step."""
    manner = {key: step[key] for key in _MANNER if key in step}
    return ConfigDict(type='Resize', scale=size[::-1], keep_ratio=False, **manner)


def _resize_model(cfg: Config, factor: _Factor, pixels: Size | None, whole: Size | None) -> None:
    """Change windows that slide over an image, and a size to which images are padded; a divisor as
    large as the images counts as a size too."""
    test_cfg = dict(cfg.model.get('test_cfg') or {})
    if test_cfg.get('mode') == 'slide':
        cfg.model.test_cfg = dict(test_cfg, **{
            key: _scaled_numbers(test_cfg[key], factor) for key in ('crop_size', 'stride')})
    owner = cfg.model if cfg.model.get('data_preprocessor') else cfg
    if not owner.get('data_preprocessor'):
        return
    pre = dict(owner['data_preprocessor'])
    divisor, test_cfg = pre.get('pad_size_divisor', 1), dict(pre.get('test_cfg') or {})
    if whole is not None and divisor >= max(whole):
        # Images that all have one height and width need no more than a divisor of both.
        pre['pad_size_divisor'] = (math.gcd(*pixels) if pixels
                                   else _scaled_numbers(divisor, factor))
    if test_cfg.get('size'):
        pre['test_cfg'] = dict(test_cfg, size=pixels or _scaled_numbers(test_cfg['size'], factor))
    owner['data_preprocessor'] = pre
