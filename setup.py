"""Metadata is in pyproject.toml; here is what it can't say.

The project's address, and README.md with absolute links, come from the clone that is built.

Configs and tools live at the root of the repository and are shipped as mmposenc/.mim, where
mim and mmengine ('mmposenc::detection/...') look for them: copied into a wheel, linked for an
editable install.
"""
import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SHIPPED = ('configs', 'tools', 'model-index.yml')


def remove(path: Path) -> None:
    """Removes a file, a link or a folder, if it is there."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def copy(source: Path, target: Path) -> None:
    """Copies a file, or a folder without what Python and editors leave in it."""
    remove(target)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns('__pycache__', '*.py[cod]'))
    else:
        shutil.copyfile(source, target)


def link(source: Path, target: Path) -> None:
    """Links relatively, so that the checkout can be moved; copies where links aren't allowed."""
    remove(target)
    try:
        target.symlink_to(os.path.relpath(source, target.parent))
    except OSError:
        copy(source, target)


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        package = ROOT if self.editable_mode else Path(self.build_lib)
        folder = package / 'mmposenc' / '.mim'
        folder.mkdir(parents=True, exist_ok=True)
        for name in SHIPPED:
            (link if self.editable_mode else copy)(ROOT / name, folder / name)


def address(origin: str) -> str:
    """The page of a repository for the URL that git fetches it from; '' if it has none.

    A name or token in the URL is left out.
    """
    found = re.fullmatch(r'(?:https?://|ssh://)?(?:[^@/]+@)?([\w.-]+\.\w+)(?::\d+)?[:/](.+?)/?',
                         origin.strip())
    return f'https://{found[1]}/{found[2].removesuffix(".git")}' if found else ''


def home() -> str:
    """The address of this project: a source archive holds it, a clone's is that of its origin."""
    info = ROOT / 'PKG-INFO'
    if info.is_file():
        found = re.search('^Project-URL: Source, (.+)$', info.read_text(encoding='utf-8'), re.M)
        return found[1] if found else ''
    if not (ROOT / '.git').exists():  # nor is that of a repository around this folder
        return ''
    try:
        origin = subprocess.run(['git', '-C', str(ROOT), 'config', 'remote.origin.url'], text=True,
                                capture_output=True, check=False)
    except OSError:  # no git
        return ''
    return address(origin.stdout)


def description(text: str, url: str) -> str:
    """README.md for an index page, which has none of our files: its links and pictures are those of
    the repository. Without an address the words of a link stay, and pictures are left out."""
    ours = r'\((?!https?:|#)([^)\s]+)\)'
    if url:
        text = text.replace('git clone REPOSITORY', f'git clone {url}').replace(
            '    # REPOSITORY: the address of this project', '')
        text = re.sub(r'(!\[[^]]*\])' + ours, rf'\1({url}/raw/HEAD/\2)', text)
        return re.sub(r'(\])' + ours, rf'\1({url}/blob/HEAD/\2)', text)
    text = re.sub(r'!\[[^]]*\]' + ours + r'\n\n\*[^*]+\*\n\n', '', text)  # with its caption
    return re.sub(r'\[([^]]*)\]' + ours, r'\1', text)


if __name__ == '__main__':
    url = home()
    # package_dir: an editable install is then a line in a .pth file. What setuptools does otherwise
    # comes after sys.path, where any folder named mmposenc, such as a clone, hides the package.
    setup(cmdclass={'build_py': BuildPy}, package_dir={'': '.'},
          long_description=description((ROOT / 'README.md').read_text(encoding='utf-8'), url),
          long_description_content_type='text/markdown',
          project_urls={'Source': url, 'Documentation': f'{url}/blob/HEAD/docs/index.md',
                        'Changelog': f'{url}/blob/HEAD/CHANGELOG.md'} if url else {})
