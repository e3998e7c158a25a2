"""The smallest run there is: a linear layer, and two samples that are all ones."""
from __future__ import annotations

import torch
from mmengine.model import BaseModel
from torch import nn


class Model(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, inputs, mode='tensor'):
        return {'loss': self.linear(inputs).square().mean()}


class Data(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict:
        return {'inputs': torch.ones(2)}
