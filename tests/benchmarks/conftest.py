"""What a benchmark sets for its process is put back after each test."""
from unittest import mock

import pytest
from torch._dynamo import config


@pytest.fixture(autouse=True)
def settings():
    with mock.patch.object(config, 'fail_on_recompile_limit_hit', False):
        yield
