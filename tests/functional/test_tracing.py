"""Recorders that store the sizes of the example are refused."""
import io

import pytest
import torch
from helpers.tiny_backbones import BUILD
from mmengine.analysis import get_model_complexity_info


@pytest.fixture(scope='module')
def model():
    return BUILD['vit'](num_layers=1, out_indices=(0,)).eval()


def test_torch_jit_trace(model):
    with pytest.raises(RuntimeError, match='store the sizes of the example'):
        torch.jit.trace(model, torch.randn(2, 3, 32, 48))


@pytest.mark.filterwarnings('ignore')
def test_torchscript_exporter(model):
    with pytest.raises(RuntimeError, match=r'use torch.export'):
        torch.onnx.export(model, (torch.randn(2, 3, 32, 48),), io.BytesIO(), dynamo=False)


@pytest.mark.filterwarnings('ignore')
def test_counting_may_record(model):
    """mmdet's get_flops does."""
    counted = get_model_complexity_info(model, (3, 32, 48), show_table=False, show_arch=False)
    patches = 4 * 6
    assert counted['flops'] > patches * 16 * 16 * 12  # the products with the weights of a block
