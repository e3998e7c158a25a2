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


@pytest.mark.parametrize('bad, what, losses', [
    (0, 'the loss is not finite', 'loss -inf, loss_log -inf, loss_plain 0.457'),
    (2, 'the gradient of scale.weight is not finite', 'loss 1.629')])
def test_the_run_ends_before_the_weights_change(tmp_path, capsys, bad, what, losses) -> None:
    run = runner(tmp_path, [1, 3, 4, 5, 1, bad], NotFiniteHook())
    with pytest.raises(NotFinite, match=rf'iteration 3: {what}; images: image_4\.jpg, '
                                        rf'image_5\.jpg; losses: .*{losses}') as status:
        run.train()
    assert status.value.code == 3
    assert 'error: iteration 3' in capsys.readouterr().err
    good = load_checkpoint(tmp_path / 'iter_2.pth')['state_dict']['scale.weight']
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'iter_2.pth')
    assert torch.equal(run.model.scale.weight, good) and good.isfinite()
