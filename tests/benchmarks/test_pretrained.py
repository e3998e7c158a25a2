"""The study of encodings for a pretrained model, in small: random weights, images of noise."""
import json

import numpy as np
import pytest
import torch
from PIL import Image
from scripts import load_script

from mmposenc.backbones import ViT

TINY = dict(patch_size=14, img_size=42, embed_dims=16, num_layers=12, num_heads=2, mlp_ratio=1,
            layer_scale_init_value=1.0)
HW, SEED = (28, 56), 0


@pytest.fixture(scope='module')
def parts():
    return load_script('benchmarks', 'pretrained_parts')


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    """A data set of 12 and 2 images, and weights."""
    folder = tmp_path_factory.mktemp('study')
    rng = np.random.default_rng(0)
    for split, count in (('training', 12), ('validation', 2)):
        for kind, ending in (('images', 'jpg'), ('annotations', 'png')):
            (folder / kind / split).mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 12 if kind == 'annotations' else 256,
                                      (36, 48) if kind == 'annotations' else (36, 48, 3))
                Image.fromarray(pixels.astype(np.uint8)).save(
                    folder / kind / split / f'{index:02}.{ending}')
    torch.manual_seed(SEED)
    backbone = ViT(**TINY, pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))
    torch.save(backbone.state_dict(), folder / 'weights.pth')
    return folder


def command(place, work_dir, *more):
    return ['--data-root', str(place), '--weights', str(place / 'weights.pth'), '--work-dir',
            str(work_dir), '--size', *map(str, HW), '--steps', '3', '--further-steps', '4',
            '--seeds', '0', '1', *more]


def rows(work_dir):
    return [json.loads(line) for line in (work_dir / 'rows.jsonl').read_text().splitlines()]


def logits(parts, place, name, start, scale):
    """Of a fitted model in training's form and of the plain backbone with the same head."""
    hw = tuple(round(side * scale) for side in HW)
    backbone = parts.build(name, start, place / 'weights.pth', TINY)
    picture = list(parts.images(place / 'images' / 'validation', hw, 1))[:1]
    path = place / f'{name}_{start}_{scale}.pt'
    # What needs no gradient is kept of the model without the encoding, as the study does.
    fixed = parts.ENCODINGS[name].fixed
    kept = parts.keep(lambda: parts.build(fixed, start, place / 'weights.pth', TINY),
                      iter(picture), start, path)
    torch.manual_seed(SEED)
    model = parts.Model(backbone if start < 12 else None, start, 16, None)
    grid = (hw[0] // 14, hw[1] // 14)
    with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
        maps = backbone(picture[0][None])
    with torch.no_grad():
        whole = model.classify(model.neck([each.float() for each in maps])[0])
        return model(kept, grid), whole


@pytest.mark.parametrize(('name', 'start', 'scale'), [
    ('table', 0, 1.5), ('sincos', 8, 1.5), ('rope', 12, 1.5), ('none', 12, 1), ('peg', 8, 1),
    ('table+irpe', 8, 1.5)])
def test_the_cut_backbone_is_the_whole_one(parts, place, name, start, scale):
    cut, whole = logits(parts, place, name, start, scale)
    # bfloat16 keeps 8 bits of tokens of about 1, behind norms and weights of 0.01.
    torch.testing.assert_close(cut, whole, rtol=0, atol=2e-3)


@pytest.mark.parametrize(('name', 'start', 'parts_of_names'), [
    ('peg', 0, {'pos_encodings.at.after0'}), ('irpe', 0, {'rel_pos_encoding'}),
    ('table', 8, {'blocks.8', 'blocks.9', 'blocks.10', 'blocks.11'}),
    ('table+peg', 8, {'blocks.8', 'blocks.9', 'blocks.10', 'blocks.11', 'after7'})])
def test_what_is_trained(parts, place, name, start, parts_of_names):
    backbone = parts.build(name, start, place / 'weights.pth', TINY)
    trained = [each for each, p in backbone.named_parameters() if p.requires_grad]
    for part in parts_of_names:
        assert any(part in each for each in trained)
    assert all(any(part in each for part in parts_of_names) for each in trained)


def test_encodings_that_start_at_zero_change_nothing_until_trained(parts, place):
    x = torch.rand(1, 3, *HW)
    plain = parts.build('table', 0, place / 'weights.pth', TINY)(x)
    for name in ('table+peg', 'table+irpe'):
        for start in (0, 8):
            backbone = parts.build(name, start, place / 'weights.pth', TINY)
            torch.testing.assert_close(backbone(x), plain, rtol=0, atol=1e-5)


def test_iou_against_sets_of_pixels(parts):
    class Known(torch.nn.Module):
        def forward(self, x, hw):
            return x

    torch.manual_seed(0)
    x, y = torch.randn(5, 11, 3, 4), torch.randint(0, 11, (5, 3, 4))
    y[0, 0] = 255
    found = parts.ious(Known(), x, y, (3, 4), 1)
    guess = x.argmax(1)
    for label in range(11):
        said, true = (guess == label) & (y != 255), y == label
        expected = 100 * int((said & true).sum()) / max(int((said | true).sum()), 1)
        assert found[label] == pytest.approx(expected)


def test_each_run_is_made_once_and_goes_on_from_its_head(place, tmp_path, monkeypatch, capsys):
    study = load_script('benchmarks', 'pretrained')
    fits = []
    fit = study.fit

    def recorded(model, x, *args, **options):
        fits.append((model.classify.weight.detach().clone(), len(x), options['rates']))
        fit(model, x, *args, **options)
        fits[-1] += (model.classify.weight.detach().clone(),)

    monkeypatch.setattr(study, 'fit', recorded)
    monkeypatch.setattr(study, 'RATES', {'head': (0.005,), 'encoding': (0.1, 0.2),
                                         'last4': (0.001,)})
    monkeypatch.setattr(study, 'HEAD_RATE', 0.002)
    whole = command(place, tmp_path, '--encodings', 'table', 'table+peg', '--trained', 'head',
                    'encoding', 'last4')
    study.main(whole, TINY)
    found = rows(tmp_path)
    # Heads of two seeds; tried rates of both encodings and the head for that; and two seeds of both
    # in both ways.
    assert [len([row for row in found if row['trained'] == trained and row['holdout'] == holdout])
            for trained in ('head', 'encoding', 'last4') for holdout in (False, True)
            ] == [2, 1, 4, 4, 4, 0]
    assert {row['encoding'] for row in found if row['trained'] == 'head'} == {'table'}
    assert {size for _, size, _, _ in fits} == {10, 12}  # five sixths where rates are tried
    by_key = {(row['encoding'], row['trained'], row['seed'], row['rate'], row['holdout']): each
              for row, each in zip(found, fits, strict=True)}
    for (_, trained, seed, rate, holdout), (before, _, rates, _) in by_key.items():
        if trained != 'head':
            start = by_key['table', 'head', seed, 0.005, holdout][-1]
            torch.testing.assert_close(before, start)
            assert rates['head'] == 0.002 and rates[trained.replace('last4', 'blocks')] == rate
    capsys.readouterr()
    count = len(fits)
    study.main(whole, TINY)
    assert len(fits) == count and rows(tmp_path) == found
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if line.startswith('| table and PEG'))
    assert line.count('|') == 11 and ' to ' in line
    # A killed run has not written its line: that alone is made again, to the same number.
    (tmp_path / 'rows.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in found[:-1]))
    study.main(whole, TINY)
    assert len(fits) == count + 1 and rows(tmp_path)[-1]['ious'] == found[-1]['ious']


def test_the_best_rate_is_the_held_out_images(place, tmp_path, monkeypatch):
    study = load_script('benchmarks', 'pretrained')
    asked = []

    def run(self, name, trained, seed, rate, holdout):
        asked.append((seed, holdout))
        return dict(ious={'1': [50 - abs(rate - 0.03)] * 11})

    monkeypatch.setattr(study.Study, 'run', run)
    args = study.parse_args(command(place, tmp_path, '--lr', '0.01', '0.03', '0.1'))
    assert study.Study(args, TINY).best_rate('table', 'head') == 0.03
    assert set(asked) == {(0, True)}
