"""Two and four processes equal one on the same images: weights, buffers, mean losses."""
import pytest
import torch
from helpers.scripts import ROOT, run_python
from helpers.train_in_processes import FAMILIES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(torch.cuda.is_available(),
                                                   reason='processes on a CPU')]


@pytest.fixture(scope='module')
def results(tmp_path_factory) -> dict[int, dict]:
    folder = tmp_path_factory.mktemp('processes')
    run_python(ROOT / 'tests/helpers/train_in_processes.py', folder)
    return {world: torch.load(folder / f'world{world}.pt', weights_only=False)
            for world in (1, 2, 4)}


@pytest.mark.parametrize('world', [2, 4])
@pytest.mark.parametrize('name', FAMILIES)
def test_processes_equal_one(results, name: str, world: int) -> None:
    """After two steps on eight images; a loss to its size."""
    one, several = results[1][name], results[world][name]
    assert one.keys() == several.keys()
    for key, value in one.items():
        if value.is_floating_point():
            size = max(1.0, value.abs().max().item())
            assert (several[key] - value).abs().max().item() <= 1e-6 * size, key
