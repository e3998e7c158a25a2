"""Pages of the documentation, run as a reader runs them.

Every ```python block of a page runs as it stands, from top to bottom, in an empty folder; the
blocks of one page share their names. A block with a ``_base_`` is a config besides, to be loaded
and trained. Commands stand in ```bash blocks and in indented lines.
"""
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]

#: First words of the indented lines that are commands.
PROGRAMS = ('bash', 'mmposenc', 'pip', 'pytest', 'python')


class Block(NamedTuple):
    """A block of code, and the line of its page before its first."""
    page: str
    line: int
    code: str

    @property
    def is_config(self) -> bool:
        return re.search(r'^_base_ *=', self.code, re.MULTILINE) is not None


def all_pages() -> list[str]:
    """Every page of the project, as paths from its root."""
    found = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *(ROOT / 'docs').rglob('*.md')]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def blocks(page: str, language: str = 'python') -> list[Block]:
    """The blocks of a page ('docs/encodings.md') in one language."""
    text = (ROOT / page).read_text()
    found = re.finditer(rf'^```{language}\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    return [Block(page, text.count('\n', 0, match.start()) + 1, match[1]) for match in found]


def configs(page: str) -> list[Block]:
    """The blocks of a page that are configs, from top to bottom."""
    return [block for block in blocks(page) if block.is_config]


def run_page(page: str, folder: Path, names: dict[str, Any] | None = None,
             without: Sequence[str] = ()) -> dict[str, Any]:
    """Runs all Python of a page, and returns the names that it leaves.

    Args:
        page: its path from the root, 'docs/encodings.md'.
        folder: an empty folder, where it runs.
        names: what a page says that its reader brings along, and nothing else.
        without: packages that are not installed: blocks that import one are left out.
    """
    names = dict(names or {})
    absent = re.compile(rf'^(import|from) ({"|".join(without)})\b' if without else '(?!)', re.M)
    os.chdir(folder)  # process_state goes back after the test
    for block in blocks(page):
        if absent.search(block.code):
            continue
        # A traceback names the line of the page.
        exec(compile('\n' * block.line + block.code, str(ROOT / page), 'exec'), names)
    return names


def commands(page: str) -> list[list[str]]:
    """The commands of a page as words, comments left out, lines that end in a backslash joined."""
    text = (ROOT / page).read_text()
    lines = [line for block in blocks(page, 'bash') for line in joined(block.code)]
    text = re.sub(r'^```.*?^```$', '', text, flags=re.DOTALL | re.MULTILINE)
    lines += [line[4:] for line in joined(text) if line.startswith('    ')]
    found = [shlex.split(line, comments=True) for line in lines if line.startswith(PROGRAMS)]
    return [words for words in found if words[0] in PROGRAMS]


def joined(text: str) -> list[str]:
    return re.sub(r' *\\\n *', ' ', text).splitlines()
