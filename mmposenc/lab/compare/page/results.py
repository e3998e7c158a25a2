"""Collects all that is known of a study from the files of its runs, and writes the report."""
from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from pathlib import Path

from mmposenc.engine.config.testing import TASKS
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.encodings import Entry

from ..running.recording import versions_and_machine
from ..running.runs import read_record
from ..running.schedule import is_taken, last_printed_lines
from ..statistics.summary import with_summary
from ..study.files import Record, read_json, write_text
from ..study.study import Run, Study
from .report import write_report

#: The kinds of costs that may be known.
_COSTS = ('hw', 'macs', 'seconds', 'peak_bytes')


def collect_results(study: Study) -> Record:
    """Collect all that is known of a study so far, without statistics."""
    records = [(run, read_record(run)) for run in study.runs()]
    extras = {run.entry.name: {name: read_json(run.folder / f'{name}.json') or {} for name in (
        'costs', 'pictures', 'figures', 'times')} for run, _ in records if run.first}
    drawn = {what: [(name, files[what]['content']) for name, files in extras.items()
                    if files[what].get('content')] for what in ('pictures', 'figures')}
    size = study.base.trained_size
    return {
        'title': Path(study.config).stem, 'config': study.config,
        'task': TASKS[study.base.scope], 'created': study.created, 'command': study.command,
        'metric': asdict(study.metric),
        'sizes': [{'factor': factor, 'hw': None if size is None else
                   [round(side * factor) for side in size]} for factor in study.sizes],
        'margin': study.margin,
        'length': {study.length.unit: study.length.number},
        'environment': _joined_environment([record for _, record in records]),
        'encodings': [_encoding_record(study, entry, records, extras[entry.name])
                      for entry in study.entries],
        'runs': [_run_record(run, record, extras[run.entry.name] if run.first else {})
                 for run, record in records],
        'pictures': _pictures_of_disagreement(drawn['pictures'], study.pictures),
        'figures': [{'encoding': name, **each} for name, held in drawn['figures'] for each in held]}


def _joined_environment(records: list[Record]) -> Record:
    """The versions and machines that trained; those of this machine if nothing was trained yet."""
    environments = [record['environment'] for record in records if 'environment' in record]
    return {name: ', '.join(dict.fromkeys(str(each[name]) for each in environments))
            for name in environments[0]} if environments else versions_and_machine()


def _encoding_record(study: Study, entry: Entry, records: list[tuple[Run, dict]], extras: Record
                     ) -> Record:
    known: dict[float, Record] = {factor: {} for factor in study.sizes}
    for each in [*(extras['costs'].get('content') or []), *extras['times']]:
        known.setdefault(each['factor'], {}).update(each)
    parameters = [each['parameters'] for each in (
        *(record for run, record in records if run.entry.name == entry.name), *known.values())
        if each.get('parameters')]
    costs = [{'factor': factor, **{key: known[factor].get(key) for key in _COSTS}}
             for factor in study.sizes]
    return {**asdict(entry), 'parameters': next(iter(parameters), None), 'costs': costs}


def _run_record(run: Run, record: Record, extras: Record) -> Record:
    status = record['status']
    if status == 'running' and not is_taken(run):
        status = 'waiting'  # The run was killed, and continues with the next call.
    recorded = {key: record[key] for key in (
        'encoding', 'seed', 'train_seconds', 'train_cpu_seconds', 'peak_bytes', 'curve', 'tests')}
    notes = [record['note'], *(each['note'] for each in extras.values() if 'note' in each)]
    return {**recorded, 'status': status, 'note': '; '.join(filter(None, notes)),
            'log': last_printed_lines(run) if status == 'failed' else []}


def _pictures_of_disagreement(drawn: list[tuple[str, list[dict]]], number: int) -> list[Record]:
    """For each image the truth and what each encoding predicts, beginning with the images on which
    they disagree most."""
    by_image: dict[str, Record] = {}
    for name, each in ((name, each) for name, held in drawn for each in held):
        picture = by_image.setdefault(each['id'], {
            'id': each['id'], 'title': each['title'],
            'entries': [{'encoding': None, **each['truth']}]})
        picture['entries'].append({'encoding': name, **each['predicted']})
    chosen = sorted(by_image.values(), key=_answers_and_errors, reverse=True)[:number]
    return [each for each in by_image.values() if each in chosen]


def _answers_and_errors(picture: Record) -> tuple[int, int]:
    """How many different answers the encodings give for a picture, and how many of these are wrong.
    """
    truth, *answers = (re.sub(r' \(\d+%\)$', '', entry['text']) for entry in picture['entries'])
    return len(set(answers)), sum(answer != truth for answer in answers)


def write_best_config(study: Study, name: str | None) -> dict[str, str] | None:
    """Write best.py, the study's config with the recommended encoding. Returns its name and the
    command that trains it, or None if nothing is recommended."""
    if name is None:
        return None
    entry = next(each for each in study.entries if each.name == name)
    path = study.folder / 'best.py'
    command = shlex.join(['mmposenc', 'train', str(path), '--work-dir', 'work_dirs/best'])
    cfg = with_entry(study.base, entry)
    head = f'{Path(study.config).name} with {" ".join(entry.label.split())}'
    write_text(path, f'# {head}, made by mmposenc compare.\n# {command}\n'
               f'{cfg.pretty_text}')
    return {'file': path.name, 'command': command}


def write_results_and_report(study: Study) -> Record:
    """Write results.csv, report.html and best.py, and return the results.

    Raises:
        OSError: a file could not be written.
    """
    results = with_summary(collect_results(study))
    results['take'] = write_best_config(study, results['recommendation']['encoding'])
    write_report(results, study.folder)
    return results
