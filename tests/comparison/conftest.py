import pytest
import torch


@pytest.fixture(autouse=True)
def _algorithms():
    """Runs in this process ask for deterministic algorithms, which no other test should get."""
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)
