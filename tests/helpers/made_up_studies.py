"""Made-up studies for tests of statistics, tables and the page: nothing in them was measured."""
import random

from mmposenc.lab.compare.statistics.results import Metric, Results

METRIC = Metric('accuracy/top1', 'top-1 accuracy', '%')
SIZES = (0.75, 1.0, 1.5, 2.0)


def run(encoding, seed, values, status='finished', **more):
    """A run with a value (or None) at each factor of ``values``."""
    return dict(dict(
        encoding=encoding, seed=seed, status=status, note='', train_seconds=92.0 + seed,
        train_cpu_seconds=91.0 + seed, peak_bytes=400 << 20,
        tests=[dict(factor=factor, value=value) for factor, value in values.items()]), **more)


def encoding(name, parameters=60_000, label=None, macs=1e6):
    costs = [dict(factor=factor, hw=None, macs=macs and macs * factor ** 2,
                  seconds=None, peak_bytes=None) for factor in SIZES]
    label = label or ('no encoding' if name == 'none' else name)
    return dict(name=name, label=label, changes={}, parameters=parameters, costs=costs)


def study(values, *, encodings=None, metric=METRIC, **more):
    """A study of encoding -> factor -> values of seeds 0, 1, ..."""
    sizes = sorted({factor for at in values.values() for factor in at})
    runs = [run(name, seed, {factor: at[factor][seed] for factor in at if seed < len(at[factor])})
            for name, at in values.items() for seed in range(max(map(len, at.values())))]
    return Results(**dict(dict(
        title='Digits', config='configs/small.py', task='classification',
        created='2026-11-22T07:00:00+00:00', command='mmposenc compare configs/small.py',
        metric=metric, length=dict(epochs=40),
        sizes=[dict(factor=f, hw=[int(32 * f)] * 2) for f in sizes],
        environment=dict(torch='2.13.0', python='3.11', device='cpu', cores=2),
        encodings=encodings or [encoding(name) for name in values], runs=runs,
        margin=1.0), **more))


def seeded(*values, first=0):
    """Values by seed."""
    return dict(enumerate(values, first))


def drawn(means, seeds=3, std=1.0, shared=1.0, seed=0):
    """Values around means: a part of each seed's deviation is every encoding's."""
    noise = random.Random(seed)
    common = [noise.gauss(0, shared) for _ in range(seeds)]
    return {name: {factor: [mean + part + noise.gauss(0, std) for part in common]
                   for factor, mean in at.items()} for name, at in means.items()}
