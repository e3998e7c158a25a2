"""Mistakes in a config that are found before anything is built."""
from pathlib import Path

import pytest
from mmengine.config import Config

from mmposenc.engine import load_config
from mmposenc.engine.config import checks
from mmposenc.engine.config.checks import (
    check_files,
    check_num_classes,
    check_palettes,
    check_sections,
)
from mmposenc.engine.config.options import check_silent_arguments


def config(root, **train) -> Config:
    data = dict(type='CocoDataset', data_root=str(root), ann_file='train.json',
                data_prefix=dict(img='images/'), **train)
    return Config(dict(train_dataloader=dict(dataset=data),
                       val_evaluator=dict(type='CocoMetric', ann_file=f'{root}/val.json')))


@pytest.fixture
def root(tmp_path):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'train.json').write_text('{}')
    (tmp_path / 'val.json').write_text('{}')
    return tmp_path


def test_missing_annotations_and_images_are_all_named_with_their_keys(root) -> None:
    (root / 'train.json').unlink()
    (root / 'images').rmdir()
    with pytest.raises(FileNotFoundError) as error:
        check_files(config(root), ('train',))
    assert f'train_dataloader.dataset.ann_file: {root}/train.json' in str(error.value)
    assert f'train_dataloader.dataset.data_prefix.img: {root}/images/' in str(error.value)


def test_evaluators_and_wrapped_data_sets(root) -> None:
    cfg = config(root)
    (root / 'val.json').unlink()
    check_files(cfg, ('train',))  # only what is used
    with pytest.raises(FileNotFoundError, match=r'val_evaluator\.ann_file: .*val\.json'):
        check_files(cfg, ('train', 'val'))
    cfg.val_evaluator = [dict(type='A'), dict(type='B', ann_file='none.json')]
    with pytest.raises(FileNotFoundError, match=r'val_evaluator\.1\.ann_file: none\.json'):
        check_files(cfg, ('val',))
    cfg.train_dataloader.dataset = dict(
        type='ConcatDataset', datasets=[
            dict(type='RepeatDataset', times=2, dataset=cfg.train_dataloader.dataset)])
    (root / 'train.json').unlink()
    with pytest.raises(FileNotFoundError, match=r'datasets\.0\.dataset\.ann_file'):
        check_files(cfg, ('train',))


@pytest.mark.parametrize('data, missing', [
    (dict(type='MNIST', data_root='{}/digits'), False),  # would be downloaded
    (dict(type='MNIST', data_root='{}/digits', download=False), True),
    (dict(type='MNIST', data_root='{}', download=False), False),
    (dict(type='CUB', data_root='{}/digits', split='train'), True),  # finds its files itself
    (dict(type='CUB', data_root='{}', split='train'), False),
    (dict(type='CUB', data_root='s3://bucket/digits'), False),
    (dict(type='CocoDataset', data_root='s3://bucket/', ann_file='a.json'), False),
    (dict(type='mmpretrain.CIFAR10', data_root='', data_prefix='data/cifar10'), False)])
def test_a_data_set_that_is_named_by_its_root(root, data, missing) -> None:
    cfg = config(root)
    cfg.train_dataloader.dataset = dict(data, data_root=data['data_root'].format(root))
    if not missing:
        check_files(cfg, ('train',))
        return
    with pytest.raises(FileNotFoundError, match=r'train_dataloader\.dataset\.data_root: .*digits'):
        check_files(cfg, ('train',))


def segmentation(decode: object, classes: object = ('a', 'b', 'c'), **model) -> Config:
    data = dict(type='BaseSegDataset', metainfo=dict(classes=classes) if classes else None)
    return Config(dict(
        default_scope='mmseg', model=dict(decode_head=decode, **model),
        train_dataloader=dict(dataset=dict(type='RepeatDataset', times=2, dataset=data)),
        val_dataloader=dict(dataset=data)))


def test_heads_and_data_with_the_same_classes_pass() -> None:
    for cfg in (segmentation(dict(num_classes=3)),
                segmentation([dict(num_classes=3), dict(num_classes=3)],
                             auxiliary_head=[dict(num_classes=3)]),
                segmentation(dict(num_classes=3), auxiliary_head=None),
                segmentation(dict(num_classes=5), classes=None),  # nobody says how many
                Config(dict(default_scope='mmdet', model=dict(decode_head=dict(num_classes=1))))):
        check_num_classes(cfg, ('train', 'val', 'test'))


@pytest.mark.parametrize('cfg, lines', [
    (segmentation(dict(num_classes=4)),
     ['model.decode_head.num_classes: 4',
      'classes of train_dataloader.dataset.dataset: 3',
      'classes of val_dataloader.dataset: 3']),
    (segmentation([dict(num_classes=3), dict(num_classes=2)]),
     ['model.decode_head.0.num_classes: 3', 'model.decode_head.1.num_classes: 2']),
    (segmentation(dict(num_classes=3), auxiliary_head=dict(num_classes=19)),
     ['model.auxiliary_head.num_classes: 19'])])
def test_class_counts_that_disagree_are_all_named(cfg, lines) -> None:
    with pytest.raises(ValueError, match='must be the same number') as error:
        check_num_classes(cfg, ('train', 'val'))
    assert all(line in str(error.value) for line in lines)


@pytest.mark.parametrize('palette, fits', [
    ([(1, 2, 3), (4, 5, 6)], False), (((1, 2, 3),), False), ([[1, 2, 3]] * 3, True),
    ([[1, 2, 3]] * 4, True), ([], True), (None, True), ('random', True), ((1, 2, 3), True)])
def test_a_palette_has_a_colour_for_each_class(palette, fits) -> None:
    cfg = segmentation(dict(num_classes=3))
    check_palettes(cfg, ('train', 'val'))
    cfg.val_dataloader.dataset.metainfo.palette = palette
    check_palettes(cfg, ('train',))
    if fits:
        check_palettes(cfg, ('train', 'val'))
        return
    with pytest.raises(ValueError, match=r'^val_dataloader\.dataset\.metainfo\.palette has '
                                         f'{len(palette)} colours for 3 classes; give one'):
        check_palettes(cfg, ('train', 'val'))


def test_classes_that_the_type_of_a_data_set_knows() -> None:
    pytest.importorskip('mmseg')
    cfg = segmentation(dict(num_classes=19))
    for kind in ('ADE20KDataset', 'mmposenc.ADE20KDataset'):
        cfg.val_dataloader.dataset = dict(type=kind)
        with pytest.raises(ValueError, match=r'classes of val_dataloader\.dataset: 150'):
            check_num_classes(cfg, ('val',))
    cfg.val_dataloader.dataset.metainfo = dict(classes=[str(i) for i in range(19)])
    check_num_classes(cfg, ('val',))


def test_classes_in_a_file_are_its_lines(tmp_path) -> None:
    """mmengine reads a file where it is given a path."""
    names = tmp_path / 'classes.txt'
    names.write_text('sky\nroad\ntree\n')
    cfg = segmentation(dict(num_classes=3))
    for key in ('train_dataloader.dataset.dataset', 'val_dataloader.dataset'):
        cfg.merge_from_dict({f'{key}.metainfo.classes': str(names)})
    check_num_classes(cfg, ('train', 'val'))
    cfg.merge_from_dict({'val_dataloader.dataset.metainfo.classes': 'sky'})
    with pytest.raises(ValueError, match=r"classes='sky' must be a list .*write \('sky',\)"):
        check_num_classes(cfg, ('train', 'val'))


def classification(root: Path, **options: object) -> Config:
    loaders = {f'{phase}_dataloader': dict(dataset=dict(
        type='CustomDataset', data_root=str(root), data_prefix=phase, **options))
        for phase in ('train', 'val')}
    return Config(dict(default_scope='mmpretrain', model=dict(head=dict(num_classes=2)), **loaders))


def test_folders_that_are_classes(tmp_path) -> None:
    for name in ('train/cat', 'train/dog', 'val/cat', 'val/dog'):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / 'val' / 'notes.txt').touch()
    cfg = classification(tmp_path)
    check_num_classes(cfg, ('train', 'val'))
    checks.check_class_folders(cfg, ('train', 'val'))
    (tmp_path / 'train' / 'bird').mkdir()
    with pytest.raises(ValueError, match=r'head\.num_classes: 2; classes of train_dat.*: 3; .*: 2'):
        check_num_classes(cfg, ('train', 'val'))
    for phases in (('train', 'val'), ('val',)):  # a test is compared with the training too
        with pytest.raises(ValueError, match='train_d.* and val_d.* must have .*one has .bird'):
            checks.check_class_folders(cfg, phases)
    checks.check_class_folders(cfg, ('train',))
    for other in (dict(with_label=False), dict(ann_file='files.txt')):
        checks.check_class_folders(classification(tmp_path, **other), ('train', 'val'))
    checks.check_class_folders(classification(tmp_path / 'elsewhere'), ('train', 'val'))


@pytest.mark.parametrize('changes, key', [
    ({'val_evaluator': dict(type='Accuracy', topk=(1, 5))}, 'val_evaluator'),
    ({'val_evaluator': [dict(type='Accuracy'), dict(type='mmpretrain.Accuracy', topk=5)]},
     'val_evaluator.1'),
    ({'val_evaluator': dict(type='Accuracy', topk=(1, 2))}, None),
    ({'model.head.topk': (1, 5)}, None),  # is read with cal_acc only
    ({'model.head.topk': (1, 5), 'model.head.cal_acc': True}, 'model.head')])
def test_accuracy_among_more_classes_than_there_are(tmp_path, changes, key) -> None:
    cfg = classification(tmp_path)
    cfg.merge_from_dict(changes)
    if key is None:
        check_num_classes(cfg, ('train', 'val'))
        return
    with pytest.raises(ValueError, match=rf'^{key}\.topk=.*5.* must be at most 2, the num_classes'):
        check_num_classes(cfg, ('train', 'val'))


@pytest.fixture
def whole() -> Config:
    return load_config('mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py')


@pytest.mark.parametrize('name', [
    'mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py',
    'mmposenc::classification/deit/deit-ti_8xb128_in1k.py',
    'mmdet::yolox/yolox_s_8xb8-300e_coco.py', 'mmseg::swin/swin-tiny-patch4-window7-in1k-'
    'pre_upernet_8xb2-160k_ade20k-512x512.py',
    'mmpretrain::resnet/resnet50_8xb256-rsb-a1-600e_in1k.py'])  # Lamb, its own optimizer
def test_configs_that_are_right_pass(name: str) -> None:
    cfg = load_config(name)
    check_sections(cfg, ('train', 'val', 'test'))
    check_silent_arguments(cfg)


@pytest.mark.parametrize('slip, meant', [
    ('optim_wraper', 'optim_wrapper'), ('train_dataloadre', 'train_dataloader'),
    ('custom_hook', 'custom_hooks'), ('defaults_hooks', 'default_hooks')])
def test_a_section_that_nothing_reads(whole, slip, meant) -> None:
    whole[slip] = dict(lr=1)
    with pytest.raises(ValueError, match=f"'{slip}', which nothing reads; did you mean '{meant}'"):
        check_sections(whole, ('train',))


def test_stacked_images_that_should_stay_apart(whole) -> None:
    whole.train_dataloader.collate_fn = dict(type='mmengine.default_collate')
    whole.model.data_preprocessor.pack = False
    check_sections(whole, ('train',))
    whole.model.data_preprocessor.pack = True
    check_sections(whole, ('val',))
    with pytest.raises(ValueError, match=r'^train_dataloader\.collate_fn=.*pack=True stacks'):
        check_sections(whole, ('train',))


def test_a_static_graph_with_accumulated_gradients_is_refused(whole) -> None:
    whole.model_wrapper_cfg = dict(type='MMDistributedDataParallel', static_graph=True)
    check_sections(whole, ('train',))
    whole.optim_wrapper.accumulative_counts = 4
    with pytest.raises(ValueError, match='static_graph=True with .*accumulative_counts=4: '):
        check_sections(whole, ('train',))


def test_what_mmengine_would_pass_over_or_tell_after_an_epoch(whole) -> None:
    whole.default_hooks.checkpoint.file_client_args = None  # handed on when it saves
    check_silent_arguments(whole)
    whole.default_hooks.checkpoint.save_bst = 'auto'
    with pytest.raises(ValueError, match=r"default_hooks\.checkpoint\.save_bst.*mean 'save_best'"):
        check_silent_arguments(whole)
    whole.optim_wrapper = dict(
        optimizer=dict(type='AdamW', lr=1e-4), paramwise_cfg=dict(layer_decay_rat=0.7),
        constructor='mmposenc.LayerDecayOptimWrapperConstructor')
    with pytest.raises(ValueError, match="did you mean 'layer_decay_rate'"):
        check_silent_arguments(whole)


COCO, ACCURACY = dict(type='CocoMetric'), dict(type='Accuracy', topk=(1, 3))


@pytest.mark.parametrize('wanted, evaluator, message', [
    ('bbox_mAP', COCO, r"'bbox_mAP': .*; did you mean 'bbox_mAP.*coco/bbox_mAP|'coco/bbox_mAP'"),
    ('coco/segm_mAP', COCO, "no such metric"), ('mIOU', dict(type='mmposenc.IoUMetric'), "'mIoU'"),
    ('accuracy/top5', ACCURACY, 'it gives accuracy/top1, accuracy/top3'),
    (['coco/bbox_mAP', 'mIoU'], [COCO], "save_best='mIoU'"), ('x/mIoU', dict(
        type='IoUMetric', prefix='y'), 'y/mIoU')])
def test_the_metric_of_the_best_checkpoint_is_not_there(wanted, evaluator, message) -> None:
    with pytest.raises(ValueError, match=message):
        checks.check_save_best(Config(dict(val_evaluator=evaluator, default_hooks=dict(
            checkpoint=dict(save_best=wanted)))))


@pytest.mark.parametrize('wanted, evaluator', [
    (None, COCO), ('auto', COCO), ('coco/bbox_mAP', COCO), ('coco/segm_mAP_50', dict(
        type='mmdet.CocoMetric', metric=['bbox', 'segm'])), ('coco/cat_precision', dict(
            COCO, classwise=True)), ('anything', dict(type='Mine')), ('anything', [COCO, dict(
                type='Mine')]), ('mDice', dict(type='IoUMetric', iou_metrics=['mIoU', 'mDice'])),
    ('accuracy/top3', ACCURACY), ('any/top1', dict(ACCURACY, prefix='any')), ('x', None)])
def test_the_metric_of_the_best_checkpoint_may_be_there(wanted, evaluator) -> None:
    checks.check_save_best(Config(dict(val_evaluator=evaluator, default_hooks=dict(
        checkpoint=dict(save_best=wanted)))))


@pytest.mark.parametrize('head, sigmoid, test_cfg, said', [
    ('mmdet.DETRHead', False, dict(max_per_img=21), 'max_per_img=21 is more than the 20 predict'),
    ('DETRHead', False, dict(max_per_img=20), None),
    ('DETRHead', False, {}, None),  # all queries
    ('DETRHead', False, None, 'max_per_img=100 is more than the 20'),  # mmdet's default
    ('DINOHead', True, dict(max_per_img=61), 'max_per_img=61 .* the 60 predictions .* 3 classes'),
    ('DINOHead', True, dict(max_per_img=60), None),
    ('RetinaHead', True, dict(max_per_img=1000), None)])
def test_fewer_predictions_than_the_test_takes(head, sigmoid, test_cfg, said) -> None:
    model = dict(num_queries=20, bbox_head=dict(
        type=head, num_classes=3, loss_cls=dict(type='FocalLoss', use_sigmoid=sigmoid)))
    if test_cfg is not None:
        model['test_cfg'] = test_cfg
    if said is None:
        checks.check_queries(Config(dict(model=model)))
    else:
        with pytest.raises(ValueError, match=f'model.test_cfg.{said}'):
            checks.check_queries(Config(dict(model=model)))


def test_fewer_masks_than_the_test_takes() -> None:
    model = dict(panoptic_head=dict(num_queries=10),
                 panoptic_fusion_head=dict(num_things_classes=2, num_stuff_classes=0),
                 test_cfg=dict(instance_on=True, max_per_image=21))
    with pytest.raises(ValueError, match='max_per_image=21 is more than the 20 predictions'):
        checks.check_queries(Config(dict(model=model)))
    model['test_cfg']['max_per_image'] = 20
    checks.check_queries(Config(dict(model=model)))
