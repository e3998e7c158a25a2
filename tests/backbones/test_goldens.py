"""The releases' own numbers: outputs of their models with the weights of small ones."""
import pytest
from helpers.golden_backbones import CASES
from helpers.golden_files import assert_released, load_golden

from mmposenc.backbones import load_pretrained
from mmposenc.checkpoint import convert


@pytest.mark.parametrize('stem', CASES)
def test_logits_and_maps(stem):
    params, arrays = load_golden(stem)
    source, build, build_maps, count = CASES[stem]
    state, model = convert(params, source), build().eval()
    model.load_state_dict({k[9:]: v for k, v in state.items() if k.startswith('backbone.')})
    pooled, = model(arrays['x'])
    assert_released(pooled @ state['head.fc.weight'].T + state['head.fc.bias'], arrays['logits'])
    if build_maps is not None:
        dense = build_maps().eval()
        load_pretrained(dense, params, strict=True)
        for index, out in enumerate(dense(arrays['x'])[:count]):
            assert_released(out, arrays[f'stage{index}'])
