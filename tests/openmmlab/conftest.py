"""Small data sets, and what is said of them."""
import logging

import pytest
from helpers.tiny_data import make_coco


@pytest.fixture
def root(tmp_path):
    return make_coco(tmp_path / 'data')


@pytest.fixture
def warnings(caplog):
    """What mmengine's print_log says, as a list."""
    from mmengine.logging import MMLogger
    MMLogger.get_instance('datasets', log_level='WARNING').addHandler(caplog.handler)
    with caplog.at_level(logging.WARNING):
        yield lambda: [record.getMessage() for record in caplog.records]
