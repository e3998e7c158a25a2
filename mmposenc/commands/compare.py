"""Compare position encodings on a data set: which one for my data?

    mmposenc compare CONFIG --encodings none learned peg irpe-k --seeds 3 --sizes 1 1.5 480x864 \\
        --jobs 2 --out work_dirs/study
    mmposenc compare CONFIG --table cpvt/table6    # the encodings of a paper's table

Trains the config with each encoding and seed, tests at every size, and writes report.html,
results.csv and best.py. Run the same command again to resume. docs/compare.md says more.
"""
from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal.messages import Parser, in_a_line, reporting_errors
from ..terminal.options import COUNT, WORDS, add_config, number_between, size_or

if TYPE_CHECKING:  # Imported only for annotations: torch is loaded when there is something to do.
    from ..lab.compare.running.workers import Workers
    from ..lab.compare.study.study import Run, Study

#: A number above 0.
number = number_between(0, 100, 'above 0, such as 1.5')


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    # Otherwise --seed would stand for --seeds.
    parser = Parser(__doc__, prog='mmposenc compare', allow_abbrev=False)
    add_config(parser, 'train_dataloader.batch_size=16')
    what = parser.add_argument_group('what is compared')
    what.add_argument('--encodings', nargs='+', metavar='NAME', default=[],
                      help='words, peg@0-5 for some blocks, sums as peg+irpe-k, yaml files, '
                      f'own classes as own.py:ALiBi (docs/compared.md). Words: keep, {WORDS}')
    what.add_argument('--table', nargs='+', metavar='TABLE', default=[],
                      help="the encodings of a paper's table, such as cpvt/table6 (mmposenc "
                      'papers lists them), in the model of the config; one row: '
                      '--encodings paper::cpvt/table6/3')
    what.add_argument('--seeds', type=COUNT, default=3, metavar='N', help='train with the seeds 0 '
                      '.. N-1; default 3')
    what.add_argument('--sizes', type=size_or(number), nargs='+', metavar='SIZE', default=[],
                      help='test at these multiples of the size of the test, or at HEIGHTxWIDTH in '
                      'pixels, to which images are stretched, such as 480x864; default 1')
    what.add_argument('--margin', type=number, default=1.0, metavar='POINTS',
                      help='smaller differences count as equal; default 1')
    how = parser.add_argument_group('how')
    how.add_argument('--out', type=Path, metavar='DIR', help='folder of the study; default '
                     'work_dirs/compare_<config>')
    how.add_argument('--jobs', type=COUNT, metavar='N', help='runs at once; default 1, or one '
                     'for each GPU')
    how.add_argument('--submitit', nargs='+', metavar='WORD', help='slurm (or local), then '
                     'options of submitit: slurm_partition=gpu timeout_min=600')
    how.add_argument('--dry-run', action='store_true', help='check everything, list the runs '
                     'with their parameters and multiply-accumulates, and write nothing')
    args = parser.parse_args(argv)
    args.out = args.out or Path('work_dirs') / f'compare_{Path(args.config).stem}'
    args.encodings += [f'paper::{table}' for table in args.table]
    if not args.encodings:
        parser.error('--encodings: name what is to be compared, such as none learned peg')
    if args.submitit and args.jobs:
        parser.error('--jobs is for this machine; with --submitit the cluster decides')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    words = sys.argv[1:] if argv is None else ['compare', *argv]
    command = shlex.join(['mmposenc', *words])
    with reporting_errors(args, only_prints=args.dry_run):
        try:
            status = run_study(args, command)
        except KeyboardInterrupt:
            print('stopped; run the same command again to resume', file=sys.stderr)
            status = 130
    sys.exit(status)


def run_study(args: argparse.Namespace, command: str) -> int:
    """Plan and run the study, and return the exit status."""
    from ..engine.config.options import config_of_arguments
    from ..lab.compare.running import planning
    from ..lab.compare.running.costs import measure_missing_costs
    from ..lab.compare.running.workers import workers_from_arguments

    workers = workers_from_arguments(args)
    study = planning.plan_study(args, config_of_arguments(args), command)
    if args.dry_run:
        print(planning.dry_run_text(study))
        return 0
    print(planning.runs_in_a_sentence(study), flush=True)
    run_remaining(study, workers)
    # The machine that submits jobs is not the one that trains: its times mean nothing.
    measure_missing_costs(study, timed=not args.submitit)
    return print_and_write_results(study)


def run_remaining(study: Study, workers: Workers) -> None:
    """Train and test the remaining runs, and keep the report up to date."""
    from ..lab.compare.page.results import write_results_and_report
    from ..lab.compare.running.progress import ProgressLines
    from ..lab.compare.running.schedule import carry_out_all

    progress = ProgressLines(study, workers.jobs or len(study.runs()))

    def tell(ended: Run | None) -> None:
        progress.show(ended)
        if ended is not None:
            try:
                write_results_and_report(study)
            except Exception as error:  # An error while the last report is written is raised.
                print(f'the report could not be written yet: {in_a_line(error)}')
    carry_out_all(study, workers, tell)


def print_and_write_results(study: Study) -> int:
    """Write the results, and print their means, their summary and how runs failed. Returns status 1
    if a run or a test failed."""
    from ..lab.compare.page.results import write_results_and_report
    from ..lab.compare.page.tables import print_overview

    results = write_results_and_report(study)
    print_overview(results)
    kinds = {'failed': 'failed', 'diverged': 'diverged, left out of the means',
             'finished': 'finished, but some tests are missing'}
    for each in results.runs:
        if each['note'] and each['status'] in kinds:
            print(f'{kinds[each["status"]]}: {each["encoding"]} seed {each["seed"]}: '
                  f'{each["note"]}')
    advice = results.recommendation
    print(advice['reason'], advice['sure'])
    files = [name for name in ('report.html', 'results.csv', 'best.py')
             if (study.folder / name).is_file()]
    print(f'{study.folder}: {", ".join(files)} ({time.strftime("%H:%M")})')
    return int(any(each['status'] == 'failed' or each['status'] == 'finished'
                   and len(each['tests']) < len(study.sizes)
                   for each in results.runs))
