"""Options of several processes that are refused, and the time limit of the config."""
import pytest
import torch

from mmposenc.engine.training.processes import join_on_a_cpu


def test_the_time_limit_of_the_config_holds_on_a_cpu(monkeypatch) -> None:
    asked = {}
    monkeypatch.setattr(torch.distributed, 'init_process_group',
                        lambda backend, timeout: asked.update({backend: timeout}))
    join_on_a_cpu('pytorch', 90)
    assert asked['gloo'].total_seconds() == 90
    with pytest.raises(ValueError, match="--launcher slurm: without a GPU only 'pytorch'"):
        join_on_a_cpu('slurm')


@pytest.mark.parametrize('timeout', [0, -1, '10 min'])
def test_a_wrong_time_limit_is_refused(timeout) -> None:
    with pytest.raises(ValueError, match='env_cfg.dist_cfg.timeout=.* must be seconds, above 0'):
        join_on_a_cpu('pytorch', timeout)
