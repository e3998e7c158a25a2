"""Wheels made here, for all data sets that are fetched: no network."""
import io
import zipfile

import pytest
from PIL import Image


@pytest.fixture
def archive():
    """``archive(members)``: an open wheel in memory."""
    def make(members):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, 'w') as written:
            for name, content in members.items():
                written.writestr(name, content)
        return zipfile.ZipFile(buffer)
    return make


@pytest.fixture
def encoded():
    """``encoded(pixels, format)``: the bytes of a picture file."""
    def encode(pixels, kind):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind)
        return buffer.getvalue()
    return encode
