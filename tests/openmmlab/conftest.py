"""Small data sets."""
import pytest
from helpers.tiny_data import make_coco


@pytest.fixture
def root(tmp_path):
    return make_coco(tmp_path / 'data')
