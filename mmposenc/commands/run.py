"""Run a script with mmposenc imported first.

    mmposenc run own_train.py CONFIG --work-dir work
    mmposenc run mmdet::tools/analysis_tools/browse_dataset.py CONFIG

After mmposenc is imported, mmcv and torchvision can be imported without their compiled operators,
and a config may name mmposenc's classes. Its CocoDataset and CocoMetric of mmdet are mmposenc's, as
in `mmposenc test`. In a script of your own, `import mmposenc` as the first import is enough for the
rest. All arguments after the script belong to the script.
"""
import argparse
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from ..terminal.messages import Parser, reporting_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc run')
    parser.add_argument('script', help='a Python file, or PACKAGE::FILE of an installed package, '
                        'as in mmdet::tools/train.py')
    parser.add_argument('arguments', nargs=argparse.REMAINDER, help='arguments of the script')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        script = find_script(args.script)
        if find_spec('mmengine'):
            from ..engine.config.checked_classes import build_checked
            build_checked()
    sys.argv = [str(script), *args.arguments]
    sys.path.insert(0, str(script.parent))  # Python does the same for a script.
    runpy.run_path(str(script), run_name='__main__')


def find_script(name: str) -> Path:
    """The path of a script: a file, or PACKAGE::FILE, which is searched in the package's .mim
    folder, in the package and in the folder that contains it."""
    if '::' not in name:
        if not Path(name).is_file():
            raise FileNotFoundError(f'there is no script {name!r}')
        return Path(name)
    from ..catalog.configs import package_folder
    package, _, relative = name.partition('::')
    installed = package_folder(package)
    for folder in (installed / '.mim', installed, installed.parent):
        if (folder / relative).is_file():
            return folder / relative
    raise FileNotFoundError(f'there is no script {relative!r} in {package} ({installed})')
