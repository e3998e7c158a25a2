"""Changes to other packages, made when they are imported."""
from types import ModuleType

import pytest

from mmposenc.compat.patches import leave_out_multimodal


@pytest.mark.parametrize('version', [4, 5])
def test_beside_transformers_5_models_of_pictures_and_text_are_left_out(version):
    module = ModuleType('mmpretrain.utils.dependency')
    module.WITH_MULTIMODAL = True
    module.satisfy_requirement = lambda text: text == 'transformers>=5' and version >= 5
    leave_out_multimodal(module)
    assert module.WITH_MULTIMODAL == (version == 4)
