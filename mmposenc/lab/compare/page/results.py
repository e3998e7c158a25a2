"""Collects all that is known of a study from the files of its runs, and writes the report."""
from __future__ import annotations

import shlex
from pathlib import Path

from mmposenc.engine.config.parsed import TASKS
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.sizes import size_at
from mmposenc.terminal.messages import comment_lines

from ..running.recording import is_taken, read_record, versions_and_machine
from ..statistics.results import Results
from ..statistics.summary import with_summary
from ..study.records import COSTS, Record, read_json_if_any, write_text
from ..study.study import Run, Study
from .report import write_report

#: The kinds of costs that may be known.
_COSTS = ('hw', 'macs', 'seconds', 'peak_bytes')


def collect_results(study: Study) -> Results:
    """Collect all that is known of a study so far, without statistics."""
    records = [(run, read_record(run)) for run in study.runs()]
    environments = [record['environment'] for _, record in records if record['environment']]
    parameters = {record['encoding']: record['parameters'] for _, record in records
                  if record['parameters']}
    known, encodings = read_json_if_any(study.costs_file, COSTS) or {}, []
    for entry in study.entries:
        rows = {row['factor']: row for row in known.get(entry.name, ())}
        counted = [row['parameters'] for row in rows.values() if row['parameters']]
        costs = [{'factor': at, **{kind: rows.get(at, {}).get(kind) for kind in _COSTS}}
                 for at in study.sizes]
        encodings.append({**entry.fields(), 'costs': costs, 'parameters': parameters.get(
            entry.name, counted[0] if counted else None)})
    number, unit = study.base.length
    # One image of this size was counted and timed; until then it is what the config says.
    hw = {row['factor']: row['hw'] for rows in known.values() for row in rows}
    # The versions and machines that trained; this machine if nothing was trained yet.
    environment = {name: ', '.join(dict.fromkeys(str(each.get(name)) for each in environments))
                   for name in environments[0]} if environments else versions_and_machine()
    sizes = [{'factor': at, 'hw': hw.get(at) or size_at(study.base, at)} for at in study.sizes]
    return Results(
        Path(study.config).stem, study.config, TASKS[study.base.library], study.base.metric, sizes,
        {unit: number}, environment, encodings,
        [_run_of_results(run, record) for run, record in records], study.created, study.command,
        study.margin)


def _run_of_results(run: Run, record: Record) -> Record:
    kept = {key: record[key] for key in ('encoding', 'seed', 'status', 'note', 'train_seconds',
                                         'train_cpu_seconds', 'peak_bytes', 'tests')}
    if record['status'] == 'running' and not is_taken(run):
        kept['status'] = 'waiting'  # The run was killed, and continues with the next call.
    return kept


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
    write_text(path, comment_lines(f'{head}, made by mmposenc compare.', command) + cfg.pretty_text)
    return {'file': path.name, 'command': command}


def write_results_and_report(study: Study) -> Results:
    """Write results.csv, report.html and best.py, and return the results.

    Raises:
        OSError: a file could not be written.
    """
    results = with_summary(collect_results(study))
    results.take = write_best_config(study, results.recommendation['encoding'])
    write_report(results, study.folder)
    return results
