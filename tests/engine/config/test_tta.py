"""The views of --tta: around the size of the test, and read as the test reads pictures."""
from types import SimpleNamespace

import pytest
import torch
from helpers import tiny_run
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import PixelData

from mmposenc.engine import load_config
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.config.testing import set_tta, views_at_test_size

LOAD, PACK = dict(type='LoadImageFromFile'), dict(type='PackSegInputs')


def sizes(views: list, resize: dict | None) -> list:
    """The Resize steps of a config with these views and this Resize in its test."""
    tta = [LOAD, dict(type='TestTimeAug', transforms=[
        [dict(type='Resize', **view) for view in views], [dict(type='RandomFlip', prob=1.0)],
        [PACK]])]
    pipeline = [LOAD, *([dict(type='Resize', **resize)] if resize else []), PACK]
    found = views_at_test_size(tta, pipeline)
    assert found[1]['transforms'][1:] == tta[1]['transforms'][1:]
    return [{name: value for name, value in step.items() if name != 'type'}
            for step in found[1]['transforms'][0]]


THREE = [dict(scale=(96, 64)), dict(scale=(192, 128)), dict(scale=(288, 192))]


@pytest.mark.parametrize('views, resize, expected', [
    # As the config has them, where the test's size is among them.
    (THREE, dict(scale=(192, 128), keep_ratio=False), THREE),
    (THREE, dict(scale=(128, 192), keep_ratio=True), THREE),
    # Scaled with the one in the middle, as the test's Resize does it.
    (THREE, dict(scale=(448, 336), keep_ratio=True), [
        dict(scale=size, keep_ratio=True) for size in ((224, 168), (448, 336), (672, 504))]),
    # Shares of the picture stay.
    ([dict(scale_factor=0.5)], dict(scale=(80, 40)), [dict(scale_factor=0.5)]),
    # The test leaves pictures as they are.
    (THREE, None, [dict(keep_ratio=True, scale_factor=(factor, factor))
                   for factor in (0.5, 1.0, 1.5)])])
def test_sizes(views, resize, expected) -> None:
    assert sizes(views, resize) == expected


def test_pictures_and_labels_are_read_as_in_the_test() -> None:
    pipeline = [dict(type='LoadImageFromFile', color_type='grayscale'),
                dict(type='mmposenc.LoadSegAnnotations', reduce_zero_label=True), PACK]
    tta = [LOAD, dict(type='TestTimeAug', transforms=[
        [dict(type='RandomFlip', prob=1.0)], [dict(type='mmposenc.LoadSegAnnotations')], [PACK]])]
    found = views_at_test_size(tta, pipeline)
    assert found[0] == pipeline[0] and found[1]['transforms'][1] == [pipeline[1]]
    assert tta[0] == LOAD  # what was given stays


@pytest.mark.parametrize('name, expected', [
    ('camvid-252x336', [(252, 189), (336, 252), (420, 315)]),
    ('nuclei-448x448', [(336, 336), (448, 448), (560, 560)])])
def test_a_config_that_changes_its_test(name, expected) -> None:
    cfg = load_config(f'mmposenc::segmentation/small/linear_vit-s14_1xb4-10e_{name}.py')
    set_tta(ParsedConfig(cfg))
    _, augmented = cfg.test_dataloader.dataset.pipeline
    assert [step.scale for step in augmented.transforms[0]] == expected
    assert cfg.model.type == 'mmposenc.SegTTAModel'


@pytest.mark.parametrize('threshold', [0.2, 0.5])
def test_a_segmentor_of_one_channel(threshold) -> None:
    """The mean of the views' probabilities against the threshold of the model."""
    from mmseg.structures import SegDataSample

    from mmposenc.openmmlab.mmseg.foreground import SegTTAModel
    class Segmentor(BaseModel):
        def forward(self, *args):
            raise NotImplementedError

    segmentor = Segmentor()
    model = SegTTAModel(module=segmentor)
    segmentor.decode_head = SimpleNamespace(out_channels=1, threshold=threshold)
    views = [SegDataSample(metainfo=dict(img_path='a.png', flip=bool(i)),
                           seg_logits=PixelData(data=torch.tensor([[row]])),
                           gt_sem_seg=PixelData(data=torch.tensor([[[0, 1, 1]]])))
             for i, row in enumerate(([0.1, 0.3, 0.9], [0.1, 0.5, 0.7]))]
    merged, = model.merge_preds([views])
    assert merged.pred_sem_seg.data.tolist() == [[[int(mean > threshold)
                                                   for mean in (0.1, 0.4, 0.8)]]]
    assert merged.img_path == 'a.png' and merged.gt_sem_seg.data.tolist() == [[[0, 1, 1]]]


@pytest.mark.parametrize('scope, model', [
    ('mmdet', 'DetTTAModel'), ('mmpretrain', 'AverageClsScoreTTA')])
def test_a_config_without_views_is_refused(scope, model) -> None:
    cfg = Config(dict(default_scope=scope, model=dict(type='RetinaNet')))
    with pytest.raises(ValueError, match=f"--tta: .* a tta_pipeline and .*type='{model}'") as error:
        set_tta(ParsedConfig(cfg))
    proposed = eval(str(error.value).partition('tta_model=')[2])
    with DefaultScope.overwrite_default_scope(scope):
        built = MODELS.build({**proposed, 'module': tiny_run.Model()})
    assert type(built).__name__ == model
