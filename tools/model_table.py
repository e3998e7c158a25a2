"""Write docs/models.md, what the classification configs build, and their metafiles.

    python tools/model_table.py            # write the page and metafiles
    python tools/model_table.py --check    # say if it is out of date
"""
import argparse
import sys
from pathlib import Path

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.engine.metafiles import PAPERS, classification_metafile
from mmposenc.engine.model_table import model_table

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, default=ROOT / 'docs' / 'models.md')
    parser.add_argument('--check', action='store_true', help='change nothing; fail if the page '
                        'is not what the configs give')
    args = parser.parse_args(argv)
    configs = ROOT / 'configs' / 'classification'
    page = model_table(configs)
    texts = {args.out: page}
    texts.update({configs / folder / 'metafile.yml': classification_metafile(page, folder)
                  for folder in PAPERS})
    for path, text in texts.items():
        if not args.check:
            path.write_text(text)
            print(f'wrote {path}')
        elif not path.is_file() or path.read_text() != text:
            sys.exit(f'error: {path} is out of date; run python tools/model_table.py')


if __name__ == '__main__':
    main()
