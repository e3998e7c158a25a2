"""results.json: all that a study knows by now, in one file."""
from __future__ import annotations

import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import mmposenc
from mmposenc.engine.config.nodes import trained_size

from ..running.runs import read_record
from ..running.schedule import is_taken, last_lines
from ..running.workers import cores
from ..statistics.summary import summarize
from ..study.files import read_json, write_json
from ..study.metrics import metric_of, task_of
from ..study.study import SCHEMA, Run, Study
from .report import write_summarized

#: What is known of a cost before it is counted.
_UNKNOWN: dict[str, Any] = dict.fromkeys(('hw', 'macs', 'activations', 'seconds', 'peak_bytes'))


def collect(study: Study) -> dict[str, Any]:
    """What results.json holds, without what the report adds; docs/report.md names every key."""
    base = study.base()
    records = [(run, read_record(run)) for run in study.runs()]
    extras = [(run, name, read_json(run.folder / f'{name}.json') or {})
              for run in study.runs() if run.first
              for name in ('costs', 'pictures', 'figures', 'diagnosis')]
    size = trained_size(base)
    return {
        'schema': SCHEMA, 'title': Path(study.config).stem, 'config': study.config,
        'task': task_of(base), 'created': study.created, 'command': study.command,
        'metric': asdict(metric_of(base)),
        'sizes': [{'factor': factor, 'trained': factor == 1, 'hw': None if size is None else
                   [round(side * factor) for side in size]} for factor in study.sizes],
        'budget': {study.length.unit: study.length.number, 'seconds': study.seconds},
        'environment': environment(),
        'encodings': [_encoding(study, entry, records) for entry in study.entries],
        'runs': [_run(run, record, _notes(extras, run)) for run, record in records],
        'pictures': _pictures(extras),
        'figures': [{'encoding': run.entry.name, **each} for run, name, held in extras
                    if name == 'figures' for each in held.get('content') or []],
        'diagnosis': [{'encoding': run.entry.name, 'seed': run.seed, **held['content']}
                      for run, name, held in extras
                      if name == 'diagnosis' and held.get('content')]}


def environment() -> dict[str, Any]:
    """Versions and the machine; memory is the accelerator's, or the whole process's on a CPU."""
    on_gpu = torch.cuda.is_available()
    return {'torch': torch.__version__, 'mmposenc': mmposenc.__version__,
            'python': platform.python_version(), 'cores': cores(),
            'device': torch.cuda.get_device_name() if on_gpu else _cpu_name(),
            'memory': 'accelerator' if on_gpu else 'process'}


def _cpu_name() -> str:
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.machine()


def _encoding(study: Study, entry: Any, records: list[tuple[Run, dict]]) -> dict[str, Any]:
    own = [(run, record) for run, record in records if run.entry.name == entry.name]
    counted = {each['factor']: each for run, _ in own if run.first
               for each in (read_json(run.folder / 'costs.json') or {}).get('content') or []}
    timed = {each['factor']: each for run, _ in own if run.first
             for each in read_json(run.folder / 'times.json') or []}
    parameters = [record['parameters'] for _, record in own if record['parameters']]
    parameters += [each['parameters'] for each in counted.values() if each['parameters']]
    costs = []
    for factor in study.sizes:
        known = {**counted.get(factor, {}), **timed.get(factor, {})}
        costs.append({'factor': factor, **{key: known.get(key) for key in _UNKNOWN}})
    return {**asdict(entry), 'parameters': parameters[0] if parameters else None, 'costs': costs}


def _run(run: Run, record: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    status = record['status']
    if status == 'running' and not is_taken(run):
        status = 'waiting'  # it was killed, and goes on with the next call
    kept = {key: record[key] for key in (
        'encoding', 'seed', 'train_seconds', 'train_cpu_seconds', 'peak_bytes', 'curve', 'tests',
        'checkpoint')}
    return {**kept, 'status': status, 'note': '; '.join(filter(None, [record['note'], *notes])),
            'log': last_lines(run) if status == 'failed' else []}


def _notes(extras: list[tuple[Run, str, dict]], run: Run) -> list[str]:
    return [held['note'] for owner, _, held in extras
            if owner.folder == run.folder and held.get('note')]


def _pictures(extras: list[tuple[Run, str, dict]]) -> list[dict[str, Any]]:
    """By image: the truth, then what each encoding predicts."""
    found: dict[str, dict[str, Any]] = {}
    for run, name, held in extras:
        for each in (held.get('content') or []) if name == 'pictures' else []:
            picture = found.setdefault(each['id'], {
                key: each[key] for key in ('id', 'title', 'source')} | {
                    'entries': [{'truth': True, **each['truth']}]})
            picture['entries'].append({'encoding': run.entry.name, **each['predicted']})
    return list(found.values())


def write_results(study: Study) -> dict[str, Any]:
    """Writes results.json and, with it, the report; returns the results.

    Raises:
        OSError: a file could not be written. What else a report may raise comes after results.json.
    """
    results = collect(study)
    try:
        results = summarize(results)
    finally:
        write_json(study.folder / 'results.json', results, safe=False)
    write_summarized(results, study.folder)
    return results
