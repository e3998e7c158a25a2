"""Holm's correction."""
from __future__ import annotations

import random

import pytest
from scripts import load_script


@pytest.fixture(scope='module')
def holm():
    return load_script('benchmarks', 'holm').corrected


def test_holm_by_hand(holm):
    # Holm's own steps: 4 x .01; 3 x .015 = .045; 2 x .02 = .04, not below .045; 1 x .9.
    assert holm([.02, .01, .9, .015]) == pytest.approx([.045, .04, .9, .045])
    assert holm([.6, .7]).tolist() == [1, 1]
    assert holm([]).tolist() == []


def test_holm_rejects_what_its_definition_does(holm):
    noise = random.Random(1)
    for _ in range(300):
        ps = [noise.random() ** 4 for _ in range(noise.randint(1, 7))]
        rejected = set()
        for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
            if ps[index] * (len(ps) - rank) >= .05:
                break
            rejected.add(index)
        assert {i for i, p in enumerate(holm(ps)) if p < .05} == rejected
