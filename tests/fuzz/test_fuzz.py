"""Options and sizes at random; a larger number tries more."""
from __future__ import annotations

import pytest
from options import check, run
from sizes import MODELS, sizes
from sizes import run as run_sizes


@pytest.mark.slow
def test_options_build_and_run_or_are_refused_by_name() -> None:
    counts = run(120)
    assert counts['works'] > 60 and counts['refused'] > 6
    assert all(counts[f'mmposenc.{kind}'] > 12 for kind in ('PVT', 'ViT', 'Swin'))


@pytest.mark.parametrize('option, message', [
    (dict(attn_drop_rate=-1.0), 'refused'), (dict(drop_rate=2.0), 'refused'),
    (dict(drop_path_rate=1.0), 'refused'), (dict(rel_pos_encoding=dict(
        type='mmposenc.TransformerXLRPE', temperature=-1.0)), 'refused'),
    (dict(rel_pos_encoding=dict(type='mmposenc.IRPE', ratio=0.1)), 'refused'),
    (dict(pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', drop=1.5)), 'refused')])
def test_what_was_found(option, message) -> None:
    """Each built once, and ended in NaN, in torch's own words or in an argument nobody gave."""
    backbone = dict(type='mmposenc.PVT', mlp_ratios=(1,) * 4, embed_dims=(8,) * 4,
                    num_layers=(1,) * 4, num_heads=(2,) * 4, **option)
    assert check(dict(backbone=backbone, size=(64, 64))) == message


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
def test_images_of_any_size(name) -> None:
    tried = sizes(1000)
    assert {max(a, b) for a, b in tried} >= {1333, 32}
    assert max(max(a, b) / min(a, b) for a, b in tried) > 19
    run_sizes(name, 5)
