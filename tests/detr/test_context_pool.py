"""ContextPool in the encoders: alone, behind a PEG, beside iRPE."""
from __future__ import annotations

import pytest
import torch
from tinydetr import IRPE, PEG, build, deformable, detr, images, total_loss

from mmposenc.encodings import ContextPool

CP = dict(type='mmposenc.ContextPool', ratio=0.5)
WAYS = {
    'alone': detr(encoder=dict(pos_encoding=CP)),
    'behind a PEG': detr(encoder=dict(pos_encoding=[PEG, CP], positions=(-1, 0))),
    'with iRPE': detr(encoder=dict(pos_encoding=CP), attn=dict(rel_pos_encoding=IRPE)),
    'deformable': deformable(levels=3, encoder=dict(pos_encoding=CP))}


@pytest.mark.parametrize('way', WAYS)
def test_a_training_step(way: str) -> None:
    model = build(WAYS[way])
    pools = [m for m in model.modules() if isinstance(m, ContextPool)]
    assert len(pools) == (2 if 'PEG' in way else 3 if way == 'deformable' else 1)
    loss = total_loss(model.train(), images(((64, 96), (45, 61))))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(bool(p.grad.isfinite().all()) for pool in pools for p in pool.parameters())


@pytest.mark.parametrize('way', ['alone', 'behind a PEG', 'with iRPE'])
def test_padding_stays_out(way: str) -> None:
    from mmdet.structures import DetDataSample
    model = build(WAYS[way]).eval()
    feature = torch.randn(1, 16, 3, 4)

    def encode(maps, full):
        sample = DetDataSample(metainfo=dict(img_shape=(96, 128), batch_input_shape=full))
        inputs, _ = model.pre_transformer((maps,), [sample])
        return model.forward_encoder(**inputs)['memory'][0]

    alone = encode(feature, (96, 128))
    padded = torch.nn.functional.pad(feature, (0, 2, 0, 1), value=7.0)
    within = encode(padded, (128, 192))
    torch.testing.assert_close(within.view(4, 6, -1)[:3, :4], alone.view(3, 4, -1), atol=1e-5,
                               rtol=1e-4)
