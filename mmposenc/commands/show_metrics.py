"""Print the COCO AP or mIoU of tests as a table, from their work directories.

    mmposenc show-metrics "other plot=work_dirs/a/test" "block=work_dirs/b/test"
"""
import argparse

from ..command_line import Parser, reported


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc show-metrics')
    parser.add_argument('tests', nargs='+', metavar='NAME=WORK_DIR', type=_row)
    return parser.parse_args(argv)


def _row(text: str) -> tuple[str, str]:
    name, equals, work_dir = text.rpartition('=')
    if not (name and equals and work_dir):
        raise argparse.ArgumentTypeError(f'{text!r} is not NAME=WORK_DIR')
    return name, work_dir


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reported(args):
        from ..engine.apps.report import metrics_table
        tests = dict(args.tests)
        if len(tests) < len(args.tests):
            raise ValueError(f'{len(args.tests)} tests have {len(tests)} names; give each test '
                             'its own name')
        print(metrics_table(tests))
