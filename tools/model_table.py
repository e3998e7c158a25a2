"""Write docs/models.md: parameters and multiply-accumulates of the classification configs.

    python tools/model_table.py            # write the page
    python tools/model_table.py --check    # say if it is out of date
"""
import argparse
import sys
from pathlib import Path

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.engine.model_table import model_table

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, default=ROOT / 'docs' / 'models.md')
    parser.add_argument('--check', action='store_true', help='change nothing; fail if the page '
                        'is not what the configs give')
    args = parser.parse_args(argv)
    page = model_table(ROOT / 'configs' / 'classification')
    if args.check:
        if not args.out.is_file() or args.out.read_text() != page:
            sys.exit(f'error: {args.out} is out of date; run python tools/model_table.py')
    else:
        args.out.write_text(page)
        print(f'wrote {args.out}')


if __name__ == '__main__':
    main()
