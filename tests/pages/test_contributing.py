"""The example of CONTRIBUTING.md does what the page says."""
import pytest
from formulas import by_distance
from helpers.page_blocks import run_page
from helpers.relative_checks import GRIDS, check_formula, check_implementations


@pytest.fixture(scope='module')
def alibi(tmp_path_factory):
    return run_page('CONTRIBUTING.md', tmp_path_factory.mktemp('contributing'))['ALiBi']


@pytest.mark.parametrize('q_grid,k_grid', GRIDS)
@pytest.mark.parametrize('prefix', [0, 1])
def test_against_the_formula(alibi, q_grid, k_grid, prefix):
    encoding = alibi(2, num_prefix_tokens=prefix)
    check_formula(encoding, lambda encoding, grids: by_distance(
        encoding, grids, lambda head, d: -d * 2.0 ** -(head + 1)), q_grid, k_grid)
    check_implementations(encoding, q_grid, k_grid)
