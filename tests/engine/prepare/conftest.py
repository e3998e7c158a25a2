"""A wheel made here in the cache, for all data sets that are fetched: no network."""
import zipfile

import pytest

from mmposenc.engine.prepare.wheels import sha256_of


@pytest.fixture
def wheel(tmp_path):
    """``wheel(name, members)``: name and hash of a wheel in ``tmp_path / 'cache'``."""
    def make(name, members):
        path = tmp_path / 'cache' / name
        path.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(path, 'w') as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return name, sha256_of(path)
    return make
