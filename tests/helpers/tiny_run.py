"""The smallest run there is: a linear layer and dropout, and a few samples."""
import itertools

import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from torch import nn

from mmposenc.engine import Runner

_numbers = itertools.count()


class Model(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(2, 2), nn.Dropout(0.5)

    def forward(self, inputs, mode='tensor'):
        if mode == 'predict':
            return [self.linear.weight.detach().clone()]
        return {'loss': self.drop(self.linear(inputs)).square().mean()}


class Data(torch.utils.data.Dataset):
    def __init__(self, length: int = 2) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict:
        return {'inputs': torch.rand(2) + index}


class Count(BaseMetric):
    """A metric that is the number of batches."""

    def process(self, data_batch, data_samples) -> None:
        self.results.append(1)

    def compute_metrics(self, results) -> dict:
        return {'acc': len(results)}


def runner(work_dir, epochs: int = 1, **options) -> Runner:
    """Trains by epoch; runs of one process have different names. ``options`` come first."""
    usual = dict(model=Model(), train_dataloader=torch.utils.data.DataLoader(Data()),
                 train_cfg=dict(by_epoch=True, max_epochs=epochs),
                 optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)))
    return Runner(work_dir=str(work_dir), experiment_name=f'tiny_{next(_numbers)}',
                  **{**usual, **options})
