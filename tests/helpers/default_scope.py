"""mmengine's default scope, which is global, for the time of a test."""
from collections.abc import Iterator
from typing import Any

import pytest
from mmengine.registry import DefaultScope


def scope_fixture(name: str) -> Any:
    """A fixture for every test of a module: the scope is ``name``, and what it was afterwards."""
    @pytest.fixture(autouse=True)
    def scope() -> Iterator[None]:
        with DefaultScope.overwrite_default_scope(name):
            yield
    return scope
