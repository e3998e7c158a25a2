"""Says 'import mmposenc first' where OpenMMLab is imported before mmposenc, and can't be.

Without compiled operators ``import mmdet.models`` fails deep inside mmcv or torchvision, before
any code of mmposenc has run. ``python -m mmposenc.compat.hint --install`` puts this file and a
.pth file that starts it into site-packages; from then on that error names its cure. Nothing else
changes: imports that succeed are not touched, and nothing is imported when Python starts.
"""
import sys

PTH = 'mmposenc_hint.pth'
MODULE = '_mmposenc_hint.py'
# The package whose import fails, and a part of the error it fails with.
FAILURES = {'mmcv.ops': 'mmcv._ext', 'torchvision': 'torchvision::nms'}
ADVICE = ('{name} is installed without compiled operators. `import mmposenc` before mmdet, mmseg, '
          'mmpretrain, mmcv.ops or torchvision: it provides them in pure PyTorch.')


class HintFinder:
    """Lets the other finders find a package, and explains one kind of error of its import."""

    def __init__(self):
        self.asking = set()  # packages the other finders are asked for: they may ask this one

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in FAILURES or fullname in self.asking or 'mmposenc' in sys.modules:
            return None
        self.asking.add(fullname)
        try:
            specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self.asking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = explain(fullname, spec.loader.exec_module)
        return spec


def explain(fullname, run):
    """Wraps the function that runs a package: its known failure becomes an advice."""
    def exec_module(module):
        try:
            run(module)
        except (ImportError, RuntimeError) as error:
            if FAILURES[fullname] not in str(error) or 'mmposenc' in sys.modules:
                raise
            raise ImportError(ADVICE.format(name=fullname), name=fullname) from error

    return exec_module


def start():
    """Called by the .pth file when Python starts, which may be more than once."""
    if not any(type(finder).__name__ == 'HintFinder' for finder in sys.meta_path):
        sys.meta_path.insert(0, HintFinder())


def install(folder):
    """Writes the two files into a folder of site-packages and returns their paths."""
    import os
    with open(__file__, encoding='utf-8') as source:
        files = {MODULE: source.read(), PTH: 'import _mmposenc_hint; _mmposenc_hint.start()\n'}
    paths = []
    for name, text in files.items():
        paths.append(os.path.join(folder, name))
        with open(paths[-1], 'w', encoding='utf-8') as target:
            target.write(text)
    return paths


def uninstall(folder):
    """Removes what install() wrote and returns the paths."""
    import os
    paths = [os.path.join(folder, name) for name in (PTH, MODULE)]
    present = [path for path in paths if os.path.exists(path)]
    for path in present:
        os.remove(path)
    return present


def main():
    import argparse
    import sysconfig
    parser = argparse.ArgumentParser(prog='python -m mmposenc.compat.hint',
                                     description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument('--install', action='store_true', help='write the two files')
    action.add_argument('--uninstall', action='store_true', help='remove them')
    parser.add_argument('--folder', default=sysconfig.get_paths()['purelib'],
                        help='the site-packages folder (default: of this Python)')
    args = parser.parse_args()
    for path in (install if args.install else uninstall)(args.folder):
        print('wrote' if args.install else 'removed', path)


if __name__ == '__main__':
    main()
