"""docs/export.md: a photo through an exported segmentor by numpy, and a backbone by itself."""

import cv2
import numpy as np
import pytest
import torch
from helpers.page_blocks import commands, inside, run_page
from helpers.scripts import NARROW
from PIL import Image

from mmposenc.commands.export import main, parse_args
from mmposenc.engine.config.models import build_model
from mmposenc.engine.config.options import config_of_arguments

PAGE = 'docs/export.md'
NARROWER = [each for each in NARROW if each.startswith('model.')] + [
    'model.neck.out_channels=8', 'model.decode_head.in_channels=8,8,8,8',
    'model.decode_head.channels=8']


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_page(tmp_path):
    """The labels are those of the model itself."""
    words = next(words for words in commands(PAGE) if words[:2] == ['mmposenc', 'export'])[2:]
    _, checkpoint, out = words
    cfg = config_of_arguments(parse_args([*words, '--cfg-options', *NARROWER]))
    torch.manual_seed(0)
    model = build_model(cfg).eval()
    (tmp_path / checkpoint).parent.mkdir(parents=True)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / checkpoint)
    with inside(tmp_path):
        main([*words, '--size', '96', '128', '--cfg-options', *NARROWER])
    pixels = np.random.default_rng(0).integers(0, 256, (90, 121, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / 'photo.jpg')
    names = run_page(PAGE, tmp_path)
    bgr = cv2.resize(names['photo'], (256, 192))  # as the config's test resizes it
    data = dict(inputs=[torch.from_numpy(bgr).permute(2, 0, 1)])
    batch = model.data_preprocessor(data, False)['inputs']
    with torch.no_grad():
        logits = model(batch, mode='tensor')
    torch.testing.assert_close(torch.from_numpy(names['logits']), logits, atol=1e-4, rtol=1e-4)
    assert Image.open(tmp_path / 'labels.png').size == (121, 90)
    images, sizes = torch.randn(3, 3, 71, 90), torch.tensor([[71, 90], [40, 90], [64, 51]])
    with torch.no_grad():
        own = names['backbone'](images, sizes)
    torch.testing.assert_close(names['program'].module()(images, sizes), own, atol=1e-5, rtol=1e-4)
