"""`mmposenc prepare`, from a checkout: python tools/prepare_data.py --help

It also works where nothing is installed, torch and mmposenc itself included.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmposenc.commands.prepare import main  # noqa: E402

if __name__ == '__main__':
    main()
