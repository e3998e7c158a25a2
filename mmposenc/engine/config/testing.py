"""What --out, --show-dir and --tta mean in each library; the config's default_scope says which
library it is."""
from __future__ import annotations

import math
import os.path as osp
from copy import deepcopy

from mmengine.config import ConfigDict

from ...config_types import ConfigType, ReadOnlyConfig
from ...writing import check_new_files
from .nodes import listed, type_without_library
from .parsed import ParsedConfig

#: For each scope, the library's visualizer.
VISUALIZERS_OF = {'mmdet': 'DetLocalVisualizer', 'mmseg': 'SegLocalVisualizer',
                  'mmpretrain': 'UniversalVisualizer'}

#: For each scope, a model that merges views, to show in a message.
_TTA_MODELS = {
    'mmdet': "dict(type='DetTTAModel', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), "
             'max_per_img=100))',
    'mmseg': "dict(type='SegTTAModel')", 'mmpretrain': "dict(type='AverageClsScoreTTA')"}


def write_predictions_to(parsed: ParsedConfig, out: str) -> None:
    """Make a test write its predictions.

    Args:
        parsed: its config is changed in place.
        out: a ``.pkl`` file (a list with one dict per image; detection masks run-length
            encoded, segmentation without logits), or, in segmentation, a folder for label maps.

    Raises:
        ValueError: neither, or a file or folder that may not be written.
    """
    cfg = parsed.cfg
    if out.endswith(('.pkl', '.pickle')):
        check_new_files(osp.dirname(out) or '.', [osp.basename(out)], '--out', ours=lambda _: False,
                        remedy='delete it, or give another file')
        kind = {'mmdet': 'mmposenc.DumpDetResults', 'mmseg': 'mmposenc.DumpSegResults',
                'mmpretrain': 'mmposenc.DumpResults'}[parsed.library]
        cfg.test_evaluator = [*listed(cfg.test_evaluator),
                              ConfigDict(type=kind, out_file_path=out)]
    elif parsed.library == 'mmseg':
        data = parsed.folders_of_data()
        check_new_files(out, (), '--out', data=data)
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), ConfigDict(
            type='mmposenc.LabelMapsHook', out_dir=out, data=data)]
    else:
        raise ValueError(f'--out {out}: it must end in .pkl or .pickle'
                         ' (a folder is possible in segmentation only)')


def draw_predictions_into(parsed: ParsedConfig, show_dir: str) -> None:
    """Make a test draw its predictions into a folder, one picture for each image."""
    data = parsed.folders_of_data()
    check_new_files(show_dir, (), '--show-dir', data=data)
    folder = osp.abspath(show_dir)  # mmdet would put a relative path below the work directory.
    set_visualizer(parsed)
    hooks = parsed.cfg.setdefault('default_hooks', ConfigDict())
    configured = hooks.get('visualization') or ConfigDict()
    options = {key: configured[key] for key in ('score_thr', 'backend_args') if key in configured}
    hooks.visualization = ConfigDict(type='mmposenc.VisualizationHook', out_dir=folder, data=data,
                                     scope=parsed.library, **options)


def set_visualizer(parsed: ParsedConfig) -> None:
    """Set the library's visualizer if a config has none, or has mmengine's, which draws no
    predictions."""
    visualizer = parsed.cfg.get('visualizer') or {}
    if type_without_library(visualizer) in ('', 'Visualizer'):
        parsed.cfg.visualizer = {'vis_backends': [{'type': 'LocalVisBackend'}], **visualizer,
                                 'type': VISUALIZERS_OF[parsed.library]}


def set_tta(parsed: ParsedConfig) -> None:
    """Make a test use several views of each image and merge them: the views in the config, around
    the size of its test.

    Raises:
        ValueError: the config does not say which views, or how to merge them.
    """
    cfg = parsed.cfg
    if parsed.library == 'mmseg':
        cfg.setdefault('tta_model', ConfigDict(type='SegTTAModel'))
    if not cfg.get('tta_pipeline') or not cfg.get('tta_model'):
        raise ValueError('--tta: the config needs a tta_pipeline and a tta_model, such as '
                         f'tta_model={_TTA_MODELS[parsed.library]}')
    dataset = parsed.data_sets_with_pipeline('test')[0]
    cfg.tta_pipeline = views_at_test_size(cfg.tta_pipeline, dataset.pipeline)
    if type_without_library(cfg.tta_model) == 'SegTTAModel':
        cfg.tta_model.type = 'mmposenc.SegTTAModel'
    dataset.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def views_at_test_size(tta_pipeline: list[ConfigType], pipeline: list[ConfigType]
                       ) -> list[ConfigType]:
    """The steps that make the views of a config, with the sizes and the reading of its test.

    A config that changes the pipeline of its test inherits the ``tta_pipeline`` of its base, which
    reads pictures and sizes them as the test of the base does. So steps that read pictures are
    replaced by those of the test. If the views have fixed sizes, and none is the test's, all are
    scaled by the factor with which the view in the middle gets the size of the test.

    Args:
        tta_pipeline: that of the config; it is not changed.
        pipeline: that of its test.
    """
    adapted = deepcopy(list(tta_pipeline))
    test_steps = {type_without_library(step): step for step in pipeline}
    views = [steps for step in adapted if type_without_library(step) == 'TestTimeAug'
             for steps in step['transforms']]
    for steps in (adapted, *views):
        for number, step in enumerate(steps):
            name = type_without_library(step)
            if name.startswith('Load') and name in test_steps:
                steps[number] = deepcopy(test_steps[name])
    for steps in views:
        if steps and all(type_without_library(step) == 'Resize' for step in steps):
            steps[:] = _resized_views(steps, test_steps.get('Resize'))
    return adapted


def _resized_views(views: list[ConfigType], test: ReadOnlyConfig | None) -> list[ConfigType]:
    """The steps that resize, with the views' sizes scaled to that of the test's step."""
    scales = [step.get('scale') for step in ([*views, test] if test else views)]
    if not all(isinstance(scale, (list, tuple)) and 0 < min(scale) <= max(scale) < math.inf
               for scale in scales):
        return views  # Sizes are shares of the picture, or leave a side open.
    if test and _size(test, test) in [_size(view, test) for view in views]:
        return views
    width, height = sorted(scales[:len(views)], key=math.prod)[len(views) // 2]
    factors = [(scale[0] / width, scale[1] / height) for scale in scales[:len(views)]]
    if test is None:  # The test leaves pictures as they are.
        return [ConfigDict(type=views[0]['type'], keep_ratio=True, scale_factor=factor)
                for factor in factors]
    return [ConfigDict({**deepcopy(test), 'scale': (round(test['scale'][0] * first),
                                                    round(test['scale'][1] * second))})
            for first, second in factors]


def _size(step: ReadOnlyConfig, test: ReadOnlyConfig) -> tuple[int, ...]:
    """The size of a step; if the test keeps the ratio of the sides, their order does not matter."""
    return tuple(sorted(step['scale'])) if test.get('keep_ratio') else tuple(step['scale'])
