"""Learning rates that are tried for each encoding, and a config that trains with another one."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config

from mmposenc.engine.config.checks import check_sections
from mmposenc.engine.config.nodes import listed

#: Factors of the config's own rate that are tried by default, and how many there may be.
FACTORS, COUNTS = (1 / 3, 1.0, 3.0), (3, 5)
#: Rates of schedulers that are no factors of the optimizer's.
_RATES = ('eta_min', 'eta_max')


def read_tune(words: Sequence[str] | None) -> tuple[float, ...]:
    """The factors that ``--tune lr [FACTOR ...]`` asks for; none without words.

    Raises:
        ValueError: it is not 'lr', or the factors are not 3 to 5 numbers above 0.
    """
    if not words:
        return ()
    what, *given = words
    if what != 'lr':
        raise ValueError(f'--tune {what}: only lr, the learning rate, can be tuned')
    try:
        factors = tuple(sorted({float(each) for each in given})) or FACTORS
    except ValueError:
        factors = ()
    if not COUNTS[0] <= len(factors) <= COUNTS[1] or not all(0 < each < 1e6 for each in factors):
        raise ValueError(f'--tune lr {" ".join(given)}: give {COUNTS[0]} to {COUNTS[1]} different '
                         "factors of the config's learning rate above 0, such as 0.3 1 3")
    return factors


def check_tunable(cfg: Config) -> None:
    """Raises ValueError where a config has no one learning rate, or does not validate."""
    set_rate(copy.deepcopy(cfg), 2)
    try:
        check_sections(cfg, ('val',))
    except ValueError as error:
        raise ValueError(f'--tune lr chooses by the validation: {error}') from error


def set_rate(cfg: Config, factor: float) -> None:
    """Trains with ``factor`` times the learning rate, its schedule with it; changes ``cfg``."""
    if factor == 1:
        return
    optimizer = _optimizer(cfg)
    optimizer['lr'] *= factor
    for each in listed(cfg.get('param_scheduler') or []):
        for key in _RATES:
            if isinstance(each.get(key), (int, float)):
                each[key] *= factor


def _optimizer(cfg: Config) -> Any:
    optimizer = (cfg.get('optim_wrapper') or {}).get('optimizer') or {}
    if not isinstance(optimizer.get('lr'), (int, float)):
        raise ValueError(f'optim_wrapper.optimizer.lr={optimizer.get("lr")!r} must be a number, so '
                         'that --tune lr and --finetune can multiply it')
    return optimizer
