"""Tests a config at other image sizes."""
from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config, ConfigDict

from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.engine.config.image_sizes import Size
from mmposenc.engine.config.nodes import type_without_library
from mmposenc.engine.config.parsed import ParsedConfig

#: Arguments of a test's steps that are numbers of pixels or a factor.
_PIXELS = ('scale', 'crop_size', 'size', 'max_size', 'width', 'height', 'img_scale', 'padding')
_SIZING = ('Resize', 'ResizeEdge', 'ResizeShortestEdge', 'FixScaleResize', 'FixShapeResize',
           'CenterCrop', 'Pad', 'EfficientNetCenterCrop')


def config_at_size(cfg: Config, factor: float) -> Config:
    """A config whose test gives images ``factor`` times as large.

    Sizes of the pipeline are multiplied and rounded (a pipeline without any gets a Resize behind
    its loading), and so are windows that slide over an image, and a size that the data preprocessor
    fills up to. Label maps and boxes stay as they are, so that predictions are compared at the data
    set's own size. Of the views of ``tta_pipeline``, shares of the picture are multiplied; fixed
    sizes, which ``--tta`` fits to the test's, stay, and so do training and validation.

    Args:
        cfg: with a test_dataloader; not changed.
        factor: above 0; 1 gives a copy.
    """
    changed = copy.deepcopy(cfg)
    if factor == 1:
        return changed
    if cfg.get('test_dataloader'):  # Copied, because validation may share parts of it.
        changed.test_dataloader = copy.deepcopy(cfg.test_dataloader)
    for node in ParsedConfig(changed).data_sets_with_pipeline('test'):
        node['pipeline'] = _resized_steps(node['pipeline'], factor)
    shares = [step for augmented in changed.get('tta_pipeline') or ()
              for steps in augmented.get('transforms', ())
              for step in steps if step.get('scale_factor') is not None]
    for step in shares:
        step['scale_factor'] = _scaled_numbers(step['scale_factor'], factor, whole=False)
    _resize_preprocessor(changed, factor, ParsedConfig(cfg).tested_size)
    test_cfg = dict(changed.model.get('test_cfg') or {})
    if test_cfg.get('mode') == 'slide':
        changed.model.test_cfg = dict(test_cfg, **{
            key: _scaled_numbers(test_cfg[key], factor) for key in ('crop_size', 'stride')})
    return changed


def size_at(parsed: ParsedConfig, factor: float) -> Size | None:
    """The size (H, W) of a test's images at a factor of the test's size; None if images keep their
    own sizes."""
    return parsed.tested_size if factor == 1 else (
        ParsedConfig(config_at_size(parsed.cfg, factor)).tested_size)


def image_sizes(parsed: ParsedConfig, factors: Sequence[float], size: Size | None = None
                ) -> dict[float, Size]:
    """(H, W) of an image of a test at each factor of its size.

    Args:
        parsed: the config.
        factors: of the test's image size.
        size: (H, W) of one of its images, where the config does not say it; None: as in training,
            else 224 x 224.
    """
    height, width = parsed.tested_size or size or parsed.trained_size or (224, 224)
    return {factor: size_at(parsed, factor) or (round(height * factor), round(width * factor))
            for factor in factors}


def factor_of(parsed: ParsedConfig, size: float | Size) -> float:
    """The factor that makes a test's images as large as a size in pixels; a factor is returned as
    it is.

    Raises:
        ValueError: the images have several sizes, or another ratio of the sides.
    """
    if isinstance(size, (int, float)):
        return size
    whole = parsed.tested_size
    if whole is None:
        raise ValueError(
            f'--sizes {_size_text(size)}: the images of the test have several sizes; give '
                         'multiples of them, such as 1.5')
    factor = size[0] / whole[0]
    if (width := round(whole[1] * factor)) != size[1]:
        raise ValueError(f'--sizes {_size_text(size)}: the sides must be in the ratio of the test, '
                         f'{_size_text(whole)}; {size[0]}x{width} would do')
    return factor


def _size_text(size: Size) -> str:
    return f'{size[0]}x{size[1]}'


def _scaled_numbers(value: Any, factor: float, whole: bool = True) -> Any:
    """Multiply numbers, or pairs and lists of them, by a factor. Numbers of pixels stay whole; what
    is no number of pixels stays as it is."""
    if isinstance(value, (list, tuple)):
        return type(value)(_scaled_numbers(each, factor, whole) for each in value)
    if not whole:
        return value * factor
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return max(round(value * factor), 1) if number and 0 < value < math.inf else value


def _resized_steps(steps: Sequence[ReadOnlyConfig], factor: float) -> list[ConfigType]:
    changed = [ConfigDict(copy.deepcopy(dict(step))) for step in steps]
    sizing = [step for step in changed if type_without_library(step) in _SIZING]
    for step in sizing:
        if step.get('scale_factor') is not None:
            step['scale_factor'] = _scaled_numbers(step['scale_factor'], factor, whole=False)
        for key in _PIXELS:
            if step.get(key) is not None:
                step[key] = _scaled_numbers(step[key], factor)
    # A crop alone would only show more of an image; EfficientNet's resizes what it cuts out.
    if not any('Resize' in name or 'EfficientNet' in name
               for name in map(type_without_library, sizing)):
        index = max((i + 1 for i, step in enumerate(changed)
                     if 'LoadImage' in type_without_library(step)), default=0)
        changed.insert(index, ConfigDict(
            type='Resize', scale_factor=float(factor), keep_ratio=True))
        pack = changed[-1]
        if 'meta_keys' in pack:  # Boxes are scaled back to the image's own size by this factor.
            pack['meta_keys'] = tuple(dict.fromkeys((*pack['meta_keys'], 'scale_factor')))
    return changed


def _resize_preprocessor(cfg: Config, factor: float, size: Size | None) -> None:
    """Multiply a size to which images are padded; a divisor as large as the images counts as a size
    too."""
    owner = cfg.model if cfg.model.get('data_preprocessor') else cfg
    if not owner.get('data_preprocessor'):
        return
    pre = dict(owner['data_preprocessor'])
    divisor, test_cfg = pre.get('pad_size_divisor', 1), dict(pre.get('test_cfg') or {})
    if size is not None and divisor >= max(size):
        pre['pad_size_divisor'] = _scaled_numbers(divisor, factor)
    if test_cfg.get('size'):
        pre['test_cfg'] = dict(test_cfg, size=_scaled_numbers(test_cfg['size'], factor))
    owner['data_preprocessor'] = pre
