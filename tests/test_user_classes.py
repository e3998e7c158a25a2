"""Classes of files and packages of the user's, by one text that any process can read."""
import pytest

from mmposenc.encodings import TokenEncoding, build_encoding
from mmposenc.registry import MODELS
from mmposenc.user_classes import class_of_file

OWN = 'from mmposenc.encodings import PEG\n\nclass Mine(PEG):\n    number = {}\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_of_one_name_are_two_modules(here):
    for number in (1, 2):
        (here / str(number)).mkdir()
        (here / str(number) / 'own.py').write_text(OWN.format(number))
    first, second = (class_of_file(f'{number}/own.py:Mine') for number in (1, 2))
    assert (first.number, second.number) == (1, 2)
    # One class, however its file is named, where encodings are looked up.
    assert class_of_file(f'{here}/1/own.py:Mine') is first
    assert MODELS.get(f'{here}/2/own.py:Mine') is second
    built = build_encoding(dict(type='2/own.py:Mine'), TokenEncoding, 'pos_encoding', embed_dims=4)
    assert type(built) is second


def test_a_file_may_import_its_neighbours(here):
    (here / 'mine.py').write_text('from neighbour_of_mine import VALUE\n' + OWN.format('VALUE'))
    (here / 'neighbour_of_mine.py').write_text('VALUE = 3\n')
    assert class_of_file('mine.py:Mine').number == 3


@pytest.mark.parametrize(('text', 'said'), [
    ('1 / 0', "cannot be imported: ZeroDivisionError: division by zero"),
    ('import sys; sys.exit(0)', 'cannot be imported: sys.exit.0. was called in .*, line 1'),
    ('class Mime: pass', "own.py has no class 'Mine'; did you mean 'Mime'"),
    ('Mine = 3', "own.py has no class 'Mine'"),
])
def test_bad_files(here, text, said):
    (here / 'own.py').write_text(text)
    with pytest.raises(ValueError, match=f"own.py:Mine'.*{said}"):
        class_of_file('own.py:Mine')
