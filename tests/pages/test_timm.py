"""docs/timm.md: it runs, and its models do what it says."""
import torch
from running import run_page

PAGE = 'docs/timm.md'


def test_the_page(tmp_path):
    names = run_page(PAGE, tmp_path)
    assert names['logits'].shape == (2, 10)
    added = [name for name in names['model'].state_dict() if 'pos_encoding' in name]
    assert 'pos_encodings.at.after0.0.proj.0.weight' in added
    assert 'blocks.11.attn.rel_pos_encoding.table_k' in added
    assert 'pos_embed' not in names['cpvt'].state_dict()
    assert [tuple(each.shape) for each in names['maps']] == [
        (1, 40, 56, 96), (1, 20, 28, 192), (1, 10, 14, 384), (1, 5, 7, 768)]
    plain = names['timm'].create_model('vit_tiny_patch16_224', dynamic_img_size=True,
                                       num_classes=10).eval()
    plain.load_state_dict(names['model'].state_dict(), strict=False)
    x = torch.randn(1, 3, 96, 64)
    with torch.no_grad():
        torch.testing.assert_close(names['model'].eval()(x), plain(x), atol=1e-6, rtol=1e-6)
