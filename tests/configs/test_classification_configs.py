"""The ImageNet recipes: what papers count, decays, schedules and data. Steps: test_gradients.py."""
import numpy as np
import pytest
import torch
from helpers.shrunk_configs import build, shrink
from mmengine.dataset import Compose
from mmengine.registry import init_default_scope
from PIL import Image

from mmposenc.engine import load_config

CONFIGS = 'mmposenc::classification/'


def test_a_peg_that_is_fixed_as_it_was_learned(tmp_path) -> None:
    """The header's command: only the PEG is the trained model's."""
    trained = build(shrink(load_config(f'{CONFIGS}cpvt/cpvt-ti_8xb128_in1k.py')), initialize=False)
    torch.save({name: value for name, value in trained.state_dict().items()
                if '.pos_encodings.' in name}, tmp_path / 'PEG.pth')
    cfg = load_config(f'{CONFIGS}cpvt/cpvt-ti-fixed-learned_8xb128_in1k.py')
    init = cfg.model.backbone.init_cfg
    shrink(cfg).model.backbone.init_cfg = {**init, 'checkpoint': str(tmp_path / 'PEG.pth')}
    model = build(cfg, seed=1)
    theirs = trained.state_dict()
    for name, value in model.backbone.named_parameters():
        is_peg = 'pos_encodings' in name
        assert value.requires_grad != is_peg
        if value.dim() > 1:
            assert torch.equal(value, theirs[f'backbone.{name}']) == is_peg, name


@pytest.mark.parametrize('name, used', [
    ('euc-ctx-shared', [19]), ('quant-ctx-shared', [50]), ('cross-ctx-shared', [27, 27]),
    ('k', [49])])
def test_buckets_in_use(name: str, used: list[int]) -> None:
    """iRPE's paper counts those that 14 x 14 patches use, and one for the class token, which
    Cross has in both of its tables: 20, 51, 56 and 50."""
    cfg = load_config(f'{CONFIGS}irpe/deit-s_irpe-{name}_8xb128_in1k.py')
    with torch.device('meta'):
        model = build(cfg, initialize=False)
    ids = model.backbone.blocks[0].attn.rel_pos_encoding.bucket_ids((14, 14))
    assert [len(each.unique()) - 1 for each in ids] == used  # without that of the class token


@pytest.mark.parametrize('name, classes', [
    ('deit/deit-ti_8xb128_in1k.py', 1000), ('transfer/deit-b_8xb32_cars.py', 196),
    ('transfer/deit-b_irpe-k_8xb32_cub.py', 200)])
def test_data(name: str, classes: int, tmp_path) -> None:
    """The pipelines run, and make what the model takes."""
    cfg = load_config(CONFIGS + name)
    init_default_scope('mmpretrain')
    assert cfg.model.head.num_classes == cfg.data_preprocessor.num_classes == classes
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / 'image.png')
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        packed = Compose(loader.dataset.pipeline)(
            dict(img_path=str(tmp_path / 'image.png'), gt_label=3))
        assert packed['inputs'].shape == (3, 224, 224) and packed['inputs'].dtype == torch.uint8
        assert packed['data_samples'].gt_label == 3
    # Validation: the shorter side to 256, the middle 224 pixels.
    expected = Image.open(tmp_path / 'image.png').resize((341, 256), Image.Resampling.BICUBIC)
    middle = np.asarray(expected)[16:240, 58:282]
    got = packed['inputs'].permute(1, 2, 0).numpy()[..., ::-1]
    assert np.abs(got.astype(int) - middle).mean() < 2
