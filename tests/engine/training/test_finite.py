"""The guard against losses and gradients that are not finite."""
import pytest
import torch
from helpers import tiny_run
from mmengine.dataset import pseudo_collate
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement
from torch import nn

from mmposenc.checkpoint import load_checkpoint
from mmposenc.engine import NotFinite, NotFiniteHook, Runner
from mmposenc.engine.training.checkpoints import latest_checkpoint


class Log(nn.Module):
    def forward(self, x):
        return x.log()


class ExplodesBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * float('inf')


class Model(BaseModel):
    """Its loss is -inf where an image is zero, its gradient infinite where one is two."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.scale = nn.Linear(1, 1, bias=False)
        self.log = Log()
        nn.init.ones_(self.scale.weight)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        x = torch.stack(inputs) if isinstance(inputs, (list, tuple)) else inputs
        logs = self.log(self.scale(x))
        if (x == 2).any():
            logs = ExplodesBackward.apply(logs)
        self.norm(x)
        return {'loss_log': logs.mean(), 'loss_plain': self.scale(x).abs().mean(), 'acc': x.sum()}


class Data(torch.utils.data.Dataset):
    def __init__(self, values) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> dict:
        sample = BaseDataElement(metainfo=dict(img_path=f'image_{index}.jpg'))
        return dict(inputs=torch.tensor([float(self.values[index])]), data_samples=sample)


def runner(work_dir, values, hook=None, **kwargs) -> Runner:
    loader = torch.utils.data.DataLoader(Data(values), batch_size=2, collate_fn=pseudo_collate)
    return tiny_run.runner(
        work_dir, model=Model(), train_dataloader=loader, custom_hooks=[hook] if hook else None,
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=1)),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.01)), **kwargs)


@pytest.mark.parametrize('bad, what, module', [
    (0, 'the loss is not finite', "terms of the loss that are not finite: loss_log; first module "
                                  r'whose output is not finite: log \(Log\)\.'),
    (2, 'the gradient of scale.weight is not finite', 'first module whose output is not finite: '
                                                      'none: it is the backward pass')])
def test_the_run_ends_with_what_shows_why(tmp_path, capsys, bad, what, module) -> None:
    run = runner(tmp_path, [1, 3, 4, 5, 1, bad], NotFiniteHook())
    with pytest.raises(NotFinite, match=rf'iteration 3: {what}; images: image_4\.jpg, '
                                        rf'image_5\.jpg; .*{module}') as status:
        run.train()
    assert status.value.code == 3
    assert 'error: iteration 3' in capsys.readouterr().err
    good = load_checkpoint(tmp_path / 'iter_2.pth')['state_dict']
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'iter_2.pth')
    bundle = load_checkpoint(tmp_path / 'not_finite' / 'iter_3' / 'checkpoint.pth')
    assert torch.equal(bundle['state_dict']['scale.weight'], good['scale.weight'])
    assert good['scale.weight'].isfinite()
    batch = load_checkpoint(tmp_path / 'not_finite' / 'iter_3' / 'images.pth')
    assert torch.stack(batch['inputs']).flatten().tolist() == [1, bad]
    assert batch['images'] == ['image_4.jpg', 'image_5.jpg']
    # The folder reproduces it.
    again = runner(tmp_path / 'again', [1, 3, 4, 5, 1, bad], NotFiniteHook(),
                   resume=True, load_from=str(tmp_path / 'not_finite/iter_3/checkpoint.pth'))
    with pytest.raises(NotFinite, match=f'iteration 3: {what}'):
        again.train()


def test_so_many_are_skipped_and_leave_nothing_behind(tmp_path) -> None:
    run = runner(tmp_path, [1, 3, 0, 5, 2, 4, 3, 5], NotFiniteHook(max_skipped=2))
    run.train()
    state = load_checkpoint(tmp_path / 'iter_4.pth')
    good = runner(tmp_path / 'good', [1, 3, 3, 5])
    good.train()
    expected = load_checkpoint(tmp_path / 'good' / 'iter_2.pth')
    for key, value in expected['state_dict'].items():
        torch.testing.assert_close(state['state_dict'][key], value, rtol=0, atol=0)
    one = runner(tmp_path / 'one', [1, 3, 0, 5, 2, 4], NotFiniteHook(max_skipped=1))
    with pytest.raises(NotFinite, match='iteration 3: the gradient'):
        one.train()


def test_without_the_guard_no_checkpoint_is_replaced(tmp_path) -> None:
    run = runner(tmp_path, [1, 3, 4, 5, 1, 0, 1, 1])
    run.train()
    assert run.model.scale.weight.isnan().all()
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['iter_1.pth', 'iter_2.pth']
    assert (tmp_path / 'last_checkpoint').read_text() == 'iter_2.pth'


def test_the_number_to_skip_is_checked() -> None:
    for value in (-1, 1.5, '3'):
        with pytest.raises(ValueError, match='max_skipped=.* at least 0'):
            NotFiniteHook(max_skipped=value)
