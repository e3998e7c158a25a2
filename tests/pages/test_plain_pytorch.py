"""docs/plain-pytorch.md runs where torch is all there is, and its cross-attention is a loop's."""
import pytest
from helpers.torch_alone import run_alone

PAGE = 'docs/plain-pytorch.md'


@pytest.mark.slow
def test_with_torch_alone(tmp_path):
    run_alone(f"""
from pathlib import Path
from helpers.page_blocks import run_page
run_page({PAGE!r}, Path({str(tmp_path)!r}))
""")
