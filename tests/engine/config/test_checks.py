"""Mistakes in a config are errors before anything is built."""
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.refusals import refused
from mmdet.models.dense_heads import DETRHead
from mmengine.config import Config

from mmposenc.engine import load_config
from mmposenc.engine.config import checks
from mmposenc.engine.config.arguments import check_arguments
from mmposenc.engine.config.models import build_model
from mmposenc.engine.config.options import check_silent_arguments
from mmposenc.engine.config.parsed import ParsedConfig, model_class
from mmposenc.engine.training.launch import set_train_options

ALL = ('train', 'val')


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / 'images').mkdir()
    for name in ('train.json', 'val.json'):
        (tmp_path / name).write_text('{}')
    return tmp_path


def detection(root: Path) -> Config:
    return Config(dict(
        train_dataloader=dict(dataset=dict(
            type='CocoDataset', data_root=str(root), ann_file='train.json',
            data_prefix=dict(img='images/'))),
        val_evaluator=dict(type='CocoMetric', ann_file=f'{root}/val.json')))


def test_missing_files_are_all_named_with_their_keys(root) -> None:
    cfg = detection(root)
    checks.check_files(ParsedConfig(cfg), ALL)
    for name in ('train.json', 'val.json'):
        (root / name).unlink()
    (root / 'images').rmdir()
    with pytest.raises(FileNotFoundError) as error:
        checks.check_files(ParsedConfig(cfg), ('train',))  # only what is used
    lines = [f'train_dataloader.dataset.ann_file: {root}/train.json',
             f'train_dataloader.dataset.data_prefix.img: {root}/images/']
    assert str(error.value).splitlines()[1].split('; ') == lines
    with pytest.raises(FileNotFoundError, match=r'val_evaluator\.ann_file: .*val\.json'):
        checks.check_files(ParsedConfig(cfg), ALL)
    cfg.val_evaluator = [dict(type='A'), dict(type='B', ann_file='none.json')]
    with pytest.raises(FileNotFoundError, match=r'val_evaluator\.1\.ann_file: none\.json'):
        checks.check_files(ParsedConfig(cfg), ('val',))
    cfg.train_dataloader.dataset = dict(type='ConcatDataset', datasets=[
        dict(type='RepeatDataset', times=2, dataset=cfg.train_dataloader.dataset)])
    with pytest.raises(FileNotFoundError, match=r'datasets\.0\.dataset\.ann_file'):
        checks.check_files(ParsedConfig(cfg), ('train',))
    weights = dict(type='Pretrained', checkpoint='no.pth')
    cfg.model = dict(pretrained='open-mmlab://a', backbone=dict(init_cfg=[weights]))
    with pytest.raises(FileNotFoundError, match=r'\nmodel\.backbone\.init_cfg\.0\.checkpoint: no'):
        checks.check_weights(ParsedConfig(cfg))


def test_a_folder_that_no_step_reads_need_not_exist(root) -> None:
    """As in mmdet's configs of Mask2Former for instances, whose base is panoptic."""
    cfg = detection(root)
    cfg.train_dataloader.dataset.data_prefix.seg = 'panoptic/'
    for pipeline, missing in (([dict(type='LoadAnnotations', with_mask=True)], False),
                              ([dict(type='LoadAnnotations', with_seg=True)], True),
                              ([dict(type='LoadPanopticAnnotations')], True), ([], True)):
        cfg.train_dataloader.dataset.pipeline = pipeline
        with pytest.raises(FileNotFoundError, match=r'\.seg: ') if missing else nullcontext():
            checks.check_files(ParsedConfig(cfg), ('train',))


@pytest.mark.parametrize('data, missing', [
    (dict(type='MNIST', data_root='{}/digits'), False),  # would be downloaded
    (dict(type='FashionMNIST', data_root='{}/digits', download=False), True),
    (dict(type='CUB', data_root='{}/digits', split='train'), True),  # finds its files itself
    (dict(type='CUB', data_root='{}', split='train'), False),
    (dict(type='CocoDataset', data_root='s3://bucket/', ann_file='a.json'), False),
    (dict(type='mmpretrain.CIFAR10', data_root='', data_prefix='data/cifar10'), False)])
def test_a_data_set_that_is_named_by_its_root(root, data, missing) -> None:
    cfg = detection(root)
    cfg.train_dataloader.dataset = dict(data, data_root=data['data_root'].format(root))
    with refused(r'train_dataloader\.dataset\.data_root: .*digits' if missing else None,
                 FileNotFoundError):
        checks.check_files(ParsedConfig(cfg), ('train',))


def segmentation(decode: object, classes: object = ('a', 'b', 'c'), **model) -> Config:
    data = dict(type='BaseSegDataset', metainfo=dict(classes=classes) if classes else None)
    return Config(dict(
        default_scope='mmseg', model=dict(decode_head=decode, **model),
        train_dataloader=dict(dataset=dict(type='RepeatDataset', times=2, dataset=data)),
        val_dataloader=dict(dataset=data)))


THREE = dict(num_classes=3)


@pytest.mark.parametrize('cfg, lines', [
    (segmentation(THREE, auxiliary_head=None), []),
    (segmentation([THREE, THREE], auxiliary_head=[THREE]), []),
    (segmentation(THREE, auxiliary_head=[dict(type='mmseg.STDCHead', num_classes=2)]), []),
    (segmentation(dict(num_classes=256, contrastive_cfg=dict(max_text_len=256))), []),
    (segmentation(dict(num_classes=5), classes=None), []),  # nobody says how many
    (Config(dict(default_scope='mmdet', model=dict(decode_head=dict(num_classes=1)))), []),
    (segmentation(dict(num_classes=4)),
     ['model.decode_head.num_classes: 4', 'classes of train_dataloader.dataset.dataset: 3',
      'classes of val_dataloader.dataset: 3']),
    (segmentation([THREE, dict(num_classes=2)]),
     ['model.decode_head.0.num_classes: 3', 'model.decode_head.1.num_classes: 2']),
    (segmentation(THREE, auxiliary_head=dict(num_classes=19)),
     ['model.auxiliary_head.num_classes: 19'])])
def test_numbers_of_classes_that_disagree_are_all_named(cfg, lines) -> None:
    with refused('must be the same number' if lines else None) as error:
        checks.check_num_classes(ParsedConfig(cfg), ALL)
    assert all(line in str(error.value) for line in lines)


def test_one_class_is_not_learned(root) -> None:
    cfg = segmentation(dict(num_classes=1), classes=('a',))
    checks.check_num_classes(ParsedConfig(cfg), ('val',))
    with pytest.raises(ValueError, match='decode_head.num_classes: 1, but one class alone is not'):
        checks.check_num_classes(ParsedConfig(cfg), ALL)
    cfg = Config(dict(train_dataloader=dict(dataset=dict(
        type='CustomDataset', data_root=str(root / 'one')))))
    (root / 'one' / 'cat').mkdir(parents=True)
    with pytest.raises(ValueError, match="one folder, 'cat', but a classifier needs two classes"):
        checks.check_same_class_folders(ParsedConfig(cfg), ('train',))


def test_head_data_and_metric_leave_out_one_label() -> None:
    cfg = segmentation(THREE)
    cfg.val_evaluator = dict(type='IoUMetric')
    for key in ('model.decode_head', 'val_evaluator', 'train_dataloader.dataset.dataset'):
        checks.check_ignored_label(ParsedConfig(cfg), ALL)
        changed = Config(cfg.to_dict())
        changed.merge_from_dict({f'{key}.ignore_index': 0})
        with pytest.raises(ValueError, match=rf'{key}\.ignore_index: 0'):
            checks.check_ignored_label(ParsedConfig(changed), ALL)


def test_classes_that_the_type_of_a_data_set_knows() -> None:
    cfg = segmentation(dict(num_classes=19))
    for kind in ('ADE20KDataset', 'mmposenc.ADE20KDataset'):
        cfg.val_dataloader.dataset = dict(type=kind)
        with pytest.raises(ValueError, match=r'classes of val_dataloader\.dataset: 150'):
            checks.check_num_classes(ParsedConfig(cfg), ('val',))
    cfg.val_dataloader.dataset.metainfo = dict(classes=[str(i) for i in range(19)])
    checks.check_num_classes(ParsedConfig(cfg), ('val',))


def test_heads_of_objects_beside_a_head_of_areas() -> None:
    cfg = load_config('mmdet::panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py')
    checks.check_num_classes(ParsedConfig(cfg), ('train', 'val', 'test'))
    cfg.model.roi_head.bbox_head.num_classes = 79
    with pytest.raises(ValueError, match=r'bbox_head\.num_classes \+ num_stuff_classes: 132; .*'
                                         r'mask_head\.num_classes \+ num_stuff_classes: 133'):
        checks.check_num_classes(ParsedConfig(cfg), ('train',))


def test_classes_in_a_file_are_its_lines(tmp_path) -> None:
    """mmengine reads a file where it is given a path."""
    (tmp_path / 'classes.txt').write_text('sky\nroad\ntree\n')
    cfg = segmentation(THREE, classes=str(tmp_path / 'classes.txt'))
    checks.check_num_classes(ParsedConfig(cfg), ALL)
    cfg.merge_from_dict({'val_dataloader.dataset.metainfo.classes': 'sky'})
    with pytest.raises(ValueError, match=r"classes='sky' must be a list .*write \('sky',\)"):
        checks.check_num_classes(ParsedConfig(cfg), ALL)
    for metainfo in (['sky', 'road'], dict(CLASSES=('sky', 'road'))):
        cfg.train_dataloader.dataset.metainfo = metainfo
        with pytest.raises(ValueError, match=r'metainfo=.* must be a dict such as dict\(classes='):
            checks.check_num_classes(ParsedConfig(cfg), ALL)


def classification(root: Path, **options: object) -> Config:
    loaders = {f'{phase}_dataloader': dict(dataset=dict(
        type='CustomDataset', data_root=str(root), data_prefix=phase, **options)) for phase in ALL}
    return Config(dict(default_scope='mmpretrain', model=dict(head=dict(num_classes=2)), **loaders))


def test_folders_that_are_classes(tmp_path) -> None:
    for name in ('train/cat', 'train/dog', 'val/cat', 'val/dog'):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / 'val' / 'notes.txt').touch()
    cfg = classification(tmp_path)
    checks.check_num_classes(ParsedConfig(cfg), ALL)
    checks.check_same_class_folders(ParsedConfig(cfg), ALL)
    cfg.val_evaluator = [dict(type='A'), dict(type='Accuracy', topk=(1, 5))]
    checks.check_topk(ParsedConfig(cfg), ('train',))
    with pytest.raises(ValueError, match=r'^val_evaluator\.1\.topk=.1, 5. .* model\.head\..*=2; '):
        checks.check_topk(ParsedConfig(cfg), ALL)
    (tmp_path / 'train' / 'bird').mkdir()
    with pytest.raises(ValueError, match=r'head\.num_classes: 2; classes of train_dat.*: 3; .*: 2'):
        checks.check_num_classes(ParsedConfig(cfg), ALL)
    (tmp_path / 'val' / 'dog').rmdir()  # That there is one folder is not what is wrong.
    for phases in (ALL, ('val',)):  # a test is compared with the training too
        with pytest.raises(ValueError, match='train_d.* and val_d.* must have .*one has .bird'):
            checks.check_same_class_folders(ParsedConfig(cfg), phases)
    checks.check_same_class_folders(ParsedConfig(cfg), ('train',))
    for other in (dict(with_label=False), dict(ann_file='files.txt')):
        checks.check_same_class_folders(ParsedConfig(classification(tmp_path, **other)), ALL)
    checks.check_same_class_folders(ParsedConfig(classification(tmp_path / 'elsewhere')), ALL)


RETINANET = 'mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py'
DECAY = dict(optimizer=dict(type='AdamW', lr=1e-4), paramwise_cfg=dict(layer_decay_rat=0.7),
             constructor='mmposenc.LayerDecayOptimWrapperConstructor')


@pytest.mark.parametrize('name, changes, message', [
    (RETINANET, {'default_hooks.checkpoint.file_client_args': None}, None),  # read when it saves
    ('mmdet::yolox/yolox_s_8xb8-300e_coco.py', {}, None),
    ('mmpretrain::resnet/resnet50_8xb256-rsb-a1-600e_in1k.py', {}, None),  # Lamb, its own optimizer
    ('mmpretrain::twins/twins-svt-base_8xb128_in1k.py', {}, None),
    (RETINANET, {'optim_wraper': dict(lr=1)}, "'optim_wraper', which nothing .* 'optim_wrapper'"),
    (RETINANET, {'custom_hook': [1]}, "'custom_hook', which nothing .* mean 'custom_hooks'"),
    # What mmengine says when it saves, and what it passes over.
    (RETINANET, {'default_hooks.checkpoint.save_bst': 'auto'},
     r"default_hooks\.checkpoint\.save_bst.*mean 'save_best'"),
    (RETINANET, {'optim_wrapper': dict(DECAY, _delete_=True)}, "did you mean 'layer_decay_rate'"),
    ('mmpretrain::deit/deit-tiny_4xb256_in1k.py', {'train_cfg.max_epochs': 20},
     r'^param_scheduler\.1\.begin=20 must be before its end, train_cfg\.max_epochs=20: '),
    ('mmseg::segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512.py',
     {'param_scheduler.1.end': 1000}, r'begin=1500 must .*, param_scheduler\.1\.end=1000: ')])
def test_mistakes_in_sections(name, changes, message) -> None:
    cfg = load_config(name)
    cfg.merge_from_dict(changes)
    with refused(message):
        checks.check_sections(ParsedConfig(cfg), ('train', 'val', 'test'))
        check_silent_arguments(ParsedConfig(cfg))


def query_head(kind: str, sigmoid: bool, **model) -> dict:
    return dict(num_queries=20, bbox_head=dict(type=kind, num_classes=3, loss_cls=dict(
        type='FocalLoss', use_sigmoid=sigmoid)), **model)


@pytest.mark.parametrize('model, message', [
    (query_head('mmdet.DETRHead', False, test_cfg=dict(max_per_img=21)),
     'max_per_img=21 is more than the 20 predict'),
    (query_head('DETRHead', False, test_cfg=dict(max_per_img=20)), None),
    (query_head('DETRHead', False, test_cfg={}), None),  # all queries
    (query_head('DETRHead', False), 'max_per_img=100 is more than the 20'),  # mmdet's default
    (query_head('DINOHead', True, test_cfg=dict(max_per_img=61)),
     'max_per_img=61 .* the 60 predictions .* 3 classes'),
    (query_head('DINOHead', True, test_cfg=dict(max_per_img=60)), None),
    (query_head('GroundingDINOHead', True, test_cfg=dict(max_per_img=61)), 'max_per_img=61 is'),
    *((dict(panoptic_head=dict(type=kind, num_queries=30, num_things_classes=2,
                               num_stuff_classes=stuff), test_cfg=test_cfg,
            panoptic_fusion_head=dict(type='MaskFormerFusionHead')), message)
      for kind in ('mmdet.Mask2FormerHead', 'mmposenc.EoMTHead', 'MaskFormerHead')
      for stuff, test_cfg, message in (
          (0, dict(instance_on=True), 'max_per_image=100 is more than the 60 .* 2 classes'),
          (0, dict(instance_on=True, max_per_image=60), None), (0, dict(panoptic_on=True), None),
          (2, dict(instance_on=True), None))),
    (query_head('RetinaHead', True, test_cfg=dict(max_per_img=1000)), None)])
def test_fewer_predictions_than_the_test_takes(model, message) -> None:
    with refused(message and f'model.test_cfg.{message}'):
        checks.check_enough_queries(ParsedConfig(Config(dict(model=model))))


def test_a_head_of_a_users_own_decides_itself_how_many_it_predicts() -> None:
    class Several(DETRHead):
        def predict_by_feat(self, *args, **kwargs):
            raise NotImplementedError

    model = query_head(Several, False, test_cfg=dict(max_per_img=21))
    checks.check_enough_queries(ParsedConfig(Config(dict(model=model))))


def test_commands_check_arguments_of_this_project(tmp_path) -> None:
    """What builds a model, and a training before it looks for its data."""
    cfg = load_config('mmdet::retinanet/retinanet_r50_fpn_1x_coco.py')
    cfg.model.backbone.pos_encoding = dict(type='mmposenc.PEG')
    cfg.work_dir = str(tmp_path / 'run')
    for command in (build_model, set_train_options):
        with pytest.raises(ValueError, match=r'^model\.backbone\.pos_encoding: mmdet\.ResNet'):
            command(cfg)


@pytest.mark.parametrize('changes, message', [
    ({'pretrained': 'mm://resnet'}, r"^model\.pretrained='mm://resnet' must be None"),
    ({'pretrained': 'deit.pth', 'backbone.type': 'mmposenc.VisionTransformer'}, None),
    ({'test_cfg': dict(mode='slide', crop_size=(64, 64), stride=(64, 43))}, None),
    ({'test_cfg': dict(mode='slide', crop_size=(64, 64))}, r', 64\) and stride=None;'),
    ({'test_cfg': dict(mode='slide', crop_size=64, stride=43)}, 'crop_size=64 and stride=43;'),
    ({'test_cfg': dict(mode='slide', crop_size=(64, 64), stride=(43, 65))}, r'stride=\(43, 65\);')])
def test_arguments_that_mmseg_reads_late(changes, message) -> None:
    cfg = Config(dict(default_scope='mmseg', model=dict(backbone=dict(type='mmposenc.PVT'))))
    cfg.merge_from_dict({f'model.{key}': value for key, value in changes.items()})
    with refused(message):
        check_arguments(ParsedConfig(cfg))


def test_a_plain_name_is_the_librarys(tmp_path) -> None:
    """Where the library and this project have a class of the same name."""
    (tmp_path / 'own.py').write_text('class SwinTransformer:\n    pass\n')
    for name, module in (('SwinTransformer', 'mmdet.models'),
                         ('mmposenc.SwinTransformer', 'mmposenc.openmmlab'),
                         (f'{tmp_path}/own.py:SwinTransformer', 'own_')):
        assert model_class(name, 'mmdet').__module__.startswith(module)


def test_folders_in_which_nothing_is_written(root) -> None:
    cfg = Config(dict(train_dataloader=dict(dataset=dict(
        type='CustomDataset', data_root=str(root))), val_dataloader=dict(dataset=dict(
            type='CocoDataset', data_root=str(root), data_prefix=dict(img='images')))))
    key = 'train_dataloader.dataset.data_prefix'  # Its root has the pictures.
    assert ParsedConfig(cfg).folders_of_data() == {
        key: f'{root}/', 'val_dataloader.dataset.data_prefix.img': f'{root}/images'}
    assert ParsedConfig(cfg).folders_of_data(of_classes=True) == {key: f'{root}/'}
