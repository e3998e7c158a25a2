"""The guard against losses and gradients that are not finite."""
import pytest
import torch
from helpers import tiny_run
from mmengine.dataset import pseudo_collate
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement
from torch import nn

from mmposenc.checkpoint import load_checkpoint
from mmposenc.engine import NotFinite, NotFiniteHook
from mmposenc.engine.training.checkpoints import latest_checkpoint


class Model(BaseModel):
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
    run = tiny_run.runner(
        tmp_path, model=Model(), custom_hooks=[NotFiniteHook()],
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
