"""docs/plain-pytorch.md runs where torch is all there is, and its cross-attention is a loop's."""
import pytest
import torch
from running import run_page
from scripts import ROOT
from test_torch_alone import run_alone

from mmposenc.functional import bucket_ids

PAGE = 'docs/plain-pytorch.md'


@pytest.mark.slow
def test_with_torch_alone(tmp_path):
    run_alone(f"""
from pathlib import Path
sys.path.insert(0, {str(ROOT / 'tests' / 'pages')!r})
from running import run_page
run_page({PAGE!r}, Path({str(tmp_path)!r}))
""")


def test_cross_attention_between_two_grids(tmp_path):
    """Each query and key by the bucket of their own offset, one pair at a time."""
    cross = run_page(PAGE, tmp_path)['cross'].double()
    table = torch.nn.init.normal_(cross.encoding.table_k)[0].detach()
    ids = bucket_ids('product', (4, 8), (2, 2), ratio=1.9)
    fine, coarse = (torch.randn(1, n, 96, dtype=torch.float64) for n in (4 * 8, 2 * 2))
    with torch.no_grad():
        got = cross(fine, (4, 8), coarse, (2, 2))[0]
        q, k, v = (each[0].unflatten(1, (3, 32)) for each in (
            cross.q(fine), *cross.kv(coarse).chunk(2, -1)))
        for i in range(32):
            heads = []
            for head in range(3):
                logits = torch.stack([q[i, head] @ (k[j, head] + table[:, ids[i, j]]) / 32 ** 0.5
                                      for j in range(4)])
                heads.append(logits.softmax(0) @ v[:, head])
            torch.testing.assert_close(got[i], cross.proj(torch.cat(heads)))
