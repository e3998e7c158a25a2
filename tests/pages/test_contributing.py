"""The example of CONTRIBUTING.md does what the page says."""
import pytest
from relative_checks import GRIDS, check_forms, check_logits, positions
from running import run_page


@pytest.fixture(scope='module')
def alibi(tmp_path_factory):
    return run_page('CONTRIBUTING.md', tmp_path_factory.mktemp('contributing'))['ALiBi']


@pytest.mark.parametrize('q_grid,k_grid', GRIDS)
@pytest.mark.parametrize('prefix', [0, 1])
def test_against_the_formula(alibi, q_grid, k_grid, prefix):
    encoding = alibi(2, num_prefix_tokens=prefix)
    queries, keys = positions(q_grid, k_grid, prefix)

    def pair_term_of(q, k):
        def term(b, h, i, j):
            if queries[i] is None or keys[j] is None:
                kind = 2 if queries[i] is keys[j] is None else 0 if queries[i] is None else 1
                return encoding.prefix_bias[h, kind]
            apart = sum((a - b) ** 2 for a, b in zip(queries[i], keys[j], strict=True)) ** 0.5
            return -apart * 2.0 ** -(h + 1)
        return term

    check_logits(encoding, pair_term_of, q_grid, k_grid)
    check_forms(encoding, q_grid, k_grid)
