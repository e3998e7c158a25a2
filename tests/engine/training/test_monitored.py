"""What a training waits for is a result of its validation, and nothing is the best of nothing."""
from types import SimpleNamespace

import pytest
import torch
from helpers import tiny_run
from mmengine.evaluator import Evaluator
from mmengine.hooks import CheckpointHook, Hook
from mmengine.logging import MMLogger
from mmpretrain.evaluation import Accuracy, SingleLabelMetric
from mmseg.evaluation import IoUMetric

from mmposenc.engine.training.monitored import check_monitored, names_of_results


@pytest.mark.parametrize('names', [['mIoU'], ['mDice', 'mFscore']])
def test_names_of_segmentation(names) -> None:
    MMLogger.get_instance('names')
    metric = IoUMetric(iou_metrics=names)
    metric.dataset_meta = dict(classes=('a', 'b'))
    assert {*metric.compute_metrics([[torch.ones(2)] * 4])} == names_of_results(metric)


def test_names_of_classification() -> None:
    metric = Accuracy(topk=(1, 2))
    metric.results = [dict(pred_score=torch.rand(3), gt_label=torch.tensor([0]))]
    assert {*metric.evaluate(1)} == names_of_results(metric)
    assert names_of_results(SingleLabelMetric()) is None


class Values(tiny_run.Count):
    """Results of one validation after the other."""

    def __init__(self, *values) -> None:
        super().__init__()
        self.values = list(values)

    def compute_metrics(self, results) -> dict:
        return {'acc': self.values.pop(0), 'auc': 0.5}


OF_USERS = Hook()
OF_USERS.monitor = True  # This may mean anything.


def run(folder, metrics, **options):
    tiny_run.runner(folder, 4, val_cfg=dict(), val_evaluator=metrics, **options,
                    val_dataloader=torch.utils.data.DataLoader(tiny_run.Data())).train()
    return sorted(path.name for path in folder.glob('best*'))


@pytest.mark.parametrize('wanted, told', [
    (dict(default_hooks=dict(checkpoint=dict(type='CheckpointHook', save_best='mIoU')),
          custom_hooks=[OF_USERS]),
     "='mIoU' of CheckpointHook is no result of the validation, which gives accuracy/top1"),
    (dict(custom_hooks=[dict(type='EarlyStoppingHook', monitor='top1', rule='greater')]),
     "='top1' of EarlyStoppingHook is no result"),
    (dict(param_scheduler=[dict(type='ReduceOnPlateauLR', monitor='loss')]),
     "='loss' of ReduceOnPlateauLR is no")])
def test_what_nothing_computes(tmp_path, wanted, told) -> None:
    with pytest.raises(ValueError, match=told):
        run(tmp_path, [Accuracy()], **wanted)


def test_another_loop_may_name_results_itself() -> None:
    """mmdet's of teacher and student does."""
    hook = CheckpointHook(save_best='student/accuracy/top1', rule='greater')
    check_monitored(SimpleNamespace(hooks=[hook], param_schedulers=[], val_loop=SimpleNamespace(
        evaluator=Evaluator(Accuracy()))))


@pytest.mark.parametrize('save_best', ['auto', 'acc', ['acc', 'auc']])
def test_nothing_is_the_best_of_nothing(tmp_path, capsys, save_best) -> None:
    hook = dict(checkpoint=dict(type='CheckpointHook', interval=1, save_best=save_best))
    best = run(tmp_path, [Values(-1.0, float('nan'), 0.25, 0.125)], default_hooks=hook)
    both = ['best_acc_epoch_3.pth', 'best_auc_epoch_1.pth']
    assert best == both[:1 + isinstance(save_best, list)]
    out = capsys.readouterr().out
    assert out.count("by save_best='acc': the validation gave") == 2 and 'gave -1.0, as' in out


def test_an_unknown_metric_lacks_the_result(tmp_path, capsys) -> None:
    hook = dict(checkpoint=dict(type='CheckpointHook', save_best='mAP'))
    assert run(tmp_path, [tiny_run.Count()], default_hooks=hook) == []
    assert "by save_best='mAP': the validation gave only acc" in capsys.readouterr().out
