import pytest
from mmengine.config import Config

from mmposenc.lab.compare.study.lengths import Length, set_length, training_length


def by_epoch(schedulers, **others):
    return Config(dict(train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=40, val_interval=10),
                       param_scheduler=schedulers, **others))


def test_all_that_is_counted_in_epochs_is_scaled():
    """A warm-up in iterations stays as it is; mmdet's schedules say no end."""
    cfg = by_epoch([dict(type='LinearLR', begin=0, end=6),
                    dict(type='MultiStepLR', begin=6, end=40, milestones=[24, 33]),
                    dict(type='CosineAnnealingLR', begin=6, end=40, T_max=34),
                    dict(type='LinearLR', by_epoch=False, begin=0, end=120),
                    dict(type='MultiStepLR', milestones=[24, 33])])
    set_length(cfg, Length('epochs', 20))
    linear, stepwise, cosine, by_iteration, endless = cfg.param_scheduler
    assert (cfg.train_cfg.max_epochs, cfg.train_cfg.val_interval) == (20, 5)
    assert (linear.begin, linear.end) == (0, 3) and by_iteration.end == 120
    assert stepwise.milestones == endless.milestones == [12, 16]  # 16.5, to the even number
    assert (cosine.begin, cosine.end, cosine.T_max, endless.end) == (3, 20, 17, 20)


def test_iterations_and_what_is_counted_in_them():
    cfg = Config(dict(
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=8000, val_interval=800,
                       dynamic_intervals=[(6000, 200)]),
        param_scheduler=[dict(type='LinearLR', by_epoch=False, begin=0, end=500),
                         dict(type='PolyLR', by_epoch=False, begin=500, end=8000)],
        custom_hooks=[dict(type='EMAHook', begin_iter=4000)],
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=800,
                                           save_best='mIoU'))))
    set_length(cfg, Length('iterations', 4000))
    assert cfg.train_cfg.to_dict() == dict(type='IterBasedTrainLoop', max_iters=4000,
                                           val_interval=400, dynamic_intervals=[(3000, 100)])
    assert [(each.begin, each.end) for each in cfg.param_scheduler] == [(0, 250), (250, 4000)]
    assert cfg.custom_hooks[0].begin_iter == 2000
    saving = cfg.default_hooks.checkpoint
    assert (saving.interval, saving.by_epoch, saving.max_keep_ckpts) == (400, False, 1)
    assert 'save_best' not in saving


def test_the_same_length_leaves_the_schedule_as_it_is():
    cfg = by_epoch([dict(type='LinearLR', begin=0, end=5),
                    dict(type='MultiStepLR', begin=0, end=40, milestones=[24, 33])])
    before = [each.to_dict() for each in cfg.param_scheduler]
    set_length(cfg, training_length(cfg))
    assert [each.to_dict() for each in cfg.param_scheduler] == before
    assert cfg.train_cfg.val_interval == 10


def test_a_schedule_without_an_end_ends_with_the_training():
    """mmpretrain's cosine: mmengine gives it the end of the training, where it may begin too."""
    for number, begin in ((20, 2), (1, 0)):
        cfg = by_epoch([dict(type='LinearLR', begin=0, end=5, convert_to_iter_based=True),
                        dict(type='CosineAnnealingLR', begin=5)])
        set_length(cfg, Length('epochs', number))
        cosine = cfg.param_scheduler[1]
        assert (cosine.begin, cosine.end) == (begin, max(number, begin + 1))
        assert cfg.train_cfg.val_interval == max(1, number // 4)


def test_what_follows_a_warm_up_in_iterations_begins_where_it_ends():
    """As mmpretrain's imagenet_bs1024_linearlr_bn_nowd has it, in a training of epochs."""
    cfg = by_epoch([dict(type='ConstantLR', by_epoch=False, begin=0, end=5000),
                    dict(type='PolyLR', by_epoch=False, begin=5000),
                    dict(type='PolyLR', by_epoch=False, begin=6000, end=8000)])
    set_length(cfg, Length('epochs', 20))
    assert [(each.begin, each.get('end')) for each in cfg.param_scheduler] == [
        (0, 5000), (5000, None), (3000, 4000)]


@pytest.mark.parametrize('cfg, length, message', [
    (by_epoch([]), Length('iterations', 10), '--iterations 10: the config trains for 40 epochs'),
    (by_epoch([]), Length('epochs', 0), '--epochs 0 must be at least 1'),
    (Config(dict(train_cfg=dict(by_epoch=True))), None, 'train_cfg.max_epochs=None'),
    (Config(dict(train_cfg=dict(type='IterBasedTrainLoop'))), None, 'train_cfg.max_iters=None')])
def test_another_unit_and_no_training_are_refused(cfg, length, message):
    with pytest.raises(ValueError, match=message):
        set_length(cfg, length or training_length(cfg))
