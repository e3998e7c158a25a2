"""The runner: weights alone are a checkpoint, a seed is that of one run, and a training that is
resumed with another schedule, rate or weight decay says so; a loss or gradient that is not finite
ends it."""
import os

import mmengine
import pytest
import torch
import torch._dynamo  # its settings are put back where it is imported before a test
from helpers.tiny_run import Data, runner
from mmengine.dataset import pseudo_collate
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement
from safetensors.torch import save_file
from torch import nn

from mmposenc.checkpoint import load_checkpoint
from mmposenc.engine import NotFinite, NotFiniteHook
from mmposenc.engine.training.checkpoints import latest_checkpoint
from mmposenc.engine.training.distributed import join_on_a_cpu
from mmposenc.engine.training.runner import Runner


@pytest.mark.parametrize('wrapped', [False, True])
def test_weights_alone_are_a_checkpoint_to_hooks_too(tmp_path, wrapped) -> None:
    run = runner(tmp_path, custom_hooks=[dict(type='EMAHook')])
    run.call_hook('before_run')
    weights = {name: torch.randn_like(value) for name, value in run.model.state_dict().items()}
    path = str(tmp_path / ('all.pth' if wrapped else 'weights.safetensors'))
    torch.save(dict(state_dict=weights), path) if wrapped else save_file(weights, path)
    run.load_checkpoint(path)
    average = next(hook.ema_model for hook in run.hooks if hasattr(hook, 'ema_model')).module
    for model in (run.model, average):
        torch.testing.assert_close(dict(model.state_dict()), weights, rtol=0, atol=0)


def test_a_resumed_run_takes_the_seed_that_the_first_one_drew(tmp_path) -> None:
    """Samplers and iterations go on with it; another run has its own."""
    def trained(folder: str, **options):
        torch.manual_seed(0)  # for the model's initial weights
        run = runner(tmp_path / folder, train_dataloader=dict(
            batch_size=1, dataset=Data(4), sampler=dict(type='DefaultSampler', shuffle=True),
            collate_fn=dict(type='default_collate')), **options)
        run.train()
        return run
    first = trained('stopped')
    resumed = trained('stopped', epochs=2, resume=True)
    whole = trained('whole', epochs=2, randomness=dict(seed=first.seed))
    assert resumed.seed == first.seed
    assert torch.equal(resumed.model.linear.weight, whole.model.linear.weight)
    assert runner(tmp_path / 'other').seed != first.seed


def test_the_time_limit_of_the_config_holds_on_a_cpu(monkeypatch) -> None:
    asked = {}
    monkeypatch.setattr(torch.distributed, 'init_process_group',
                        lambda backend, timeout: asked.update({backend: timeout}))
    join_on_a_cpu('pytorch', 90)
    assert asked['gloo'].total_seconds() == 90
    for launcher, timeout, message in (
            ('slurm', 90, "--launcher slurm: without a GPU only 'pytorch'"),
            ('pytorch', 0, 'dist_cfg.timeout=0 must be seconds, above 0'),
            ('pytorch', '10 min', "dist_cfg.timeout='10 min' must be seconds, above 0")):
        with pytest.raises(ValueError, match=message):
            join_on_a_cpu(launcher, timeout)


def test_mpirun_says_which_gpu_a_process_has(monkeypatch) -> None:
    monkeypatch.setenv('OMPI_COMM_WORLD_LOCAL_RANK', '3')
    monkeypatch.setenv('LOCAL_RANK', '')  # so that it is put back
    monkeypatch.delenv('LOCAL_RANK')
    monkeypatch.setattr(mmengine.runner.Runner, 'setup_env', lambda run, cfg: None)
    run = Runner.__new__(Runner)
    run._launcher, run._distributed = 'mpi', False
    run.setup_env({})
    assert os.environ['LOCAL_RANK'] == '3'


@pytest.mark.usefixtures('fresh_compiler')
def test_compiled_modules_train_as_others(tmp_path) -> None:
    weights = []
    for hooks in (None, [dict(type='mmposenc.CompileHook', backend='aot_eager',
                              regions=['Linear'])]):
        torch.manual_seed(0)
        run = runner(tmp_path / f'{hooks is None}', custom_hooks=hooks, randomness=dict(seed=0))
        run.train()
        weights.append(dict(run.model.state_dict()))
    torch.testing.assert_close(*weights)
    assert "Compiles {'Linear': 1} with aot_eager" in next(
        (tmp_path / 'False').glob('*/*.log')).read_text()


PLANS = {
    'steps': [dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=4),
              dict(type='MultiStepLR', by_epoch=True, milestones=[3, 5], gamma=0.1)],
    'poly': [dict(type='PolyLR', by_epoch=False, begin=0, end=18, power=0.9, eta_min=1e-4)]}


def logs_of(folder, plan: str, epochs: int, lr: float = 0.1, **options) -> str:
    """The logs of the folder after a training of three steps an epoch."""
    optimizer, schedule = dict(type='SGD', lr=lr, momentum=0.9), PLANS[plan]
    cfg = dict(train_cfg=dict(by_epoch=True, max_epochs=epochs), param_scheduler=schedule,
               optim_wrapper=dict(optimizer=optimizer), train_dataloader=dict(batch_size=epochs))
    runner(folder, epochs, train_dataloader=torch.utils.data.DataLoader(Data(3)),
           optim_wrapper=dict(optimizer=dict(optimizer)), param_scheduler=schedule, cfg=cfg,
           **options).train()
    return ''.join(path.read_text() for path in folder.rglob('*.log'))


@pytest.mark.parametrize('plan, lr, changes', [
    ('steps', 0.1, ['train_cfg.max_epochs: 4 -> 6', 'images of a step: 4 -> 6']),
    ('steps', 0.03, ['train_cfg.max_epochs: 4 -> 6', 'optim_wrapper.optimizer.lr: 0.1 -> 0.03']),
    ('poly', 0.1, ['param_scheduler.0.power: none -> 0.9',
                   'param_scheduler.1.milestones.0: 3 -> none'])])
def test_a_resumed_training_says_in_one_line_what_differs(tmp_path, plan, lr, changes) -> None:
    assert 'other settings' not in logs_of(tmp_path, 'steps', 4)
    log = logs_of(tmp_path, plan, 6, lr, resume=True)
    message, = (line for line in log.splitlines() if 'other settings' in line)
    assert all(change in message for change in changes)


def test_fewer_samples_than_a_batch(tmp_path) -> None:
    loader = torch.utils.data.DataLoader(Data(2), batch_size=4, drop_last=True)
    with pytest.raises(ValueError, match='gives no batch; .* lower batch_size, or set drop_last'):
        runner(tmp_path, train_dataloader=loader).train()


def test_nothing_is_said_without_a_change(tmp_path) -> None:
    logs_of(tmp_path, 'steps', 3)
    (tmp_path / 'epoch_3.pth').unlink()
    log = logs_of(tmp_path, 'steps', 3, resume=True)
    assert '6 of them done' in log and 'other settings' not in log


class Roots(BaseModel):
    """Its loss is -inf where an image is zero, its gradient infinite where one is two."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.scale.weight)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        x = torch.stack(inputs)
        scaled = self.scale(x)
        loss = scaled.log().mean()
        if (x == 2).any():  # the root of zero
            loss = loss + (scaled - scaled.detach()).sqrt().sum()
        return {'loss': loss}


@pytest.mark.parametrize('bad, what', [
    (0, 'the loss is not finite'), (2, 'the gradient of scale.weight is not finite')])
def test_the_run_ends_before_the_weights_change(tmp_path, capsys, bad, what) -> None:
    images = [dict(inputs=torch.tensor([float(value)]), data_samples=BaseDataElement(
        metainfo=dict(img_path=f'image_{i}.jpg'))) for i, value in enumerate([1, 3, 4, 5, 1, bad])]
    run = runner(
        tmp_path, model=Roots(), custom_hooks=[NotFiniteHook()],
        train_dataloader=torch.utils.data.DataLoader(images, 2, collate_fn=pseudo_collate),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=1)),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.01)))
    with pytest.raises(NotFinite, match=f'iteration 3: {what}; images: image_4.jpg, image_5.jpg'
                       ) as status:
        run.train()
    assert status.value.code == 3
    assert 'error: iteration 3' in capsys.readouterr().err
    good = load_checkpoint(tmp_path / 'iter_2.pth')['state_dict']['scale.weight']
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'iter_2.pth')
    assert torch.equal(run.model.scale.weight, good) and good.isfinite()
