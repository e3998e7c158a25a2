"""With a wheel made here: no network."""
import dataclasses
import importlib.metadata
import io
import json

import numpy as np
import pytest
from PIL import Image

from mmposenc.engine.prepare import wheels
from mmposenc.engine.prepare.folders import MANIFEST, PrepareError
from mmposenc.engine.prepare.tiles import tile_starts
from mmposenc.engine.prepare.trees import TREES, Region, TreesSource, clip_boxes, read_voc
from mmposenc.engine.prepare.wheels import fetch_wheel, prepare_from_wheel

NAME = 'fakeforest-1.0-py3-none-any.whl'
BOXES = {'plot_a': [(1, 1, 20, 20), (31, 1, 50, 20), (70, 70, 90, 90), (35, 35, 44, 44)],
         'plot_b': [(3, 3, 12, 12)]}
SIZES = {'plot_a': (100, 110), 'plot_b': (40, 40)}


def picture(name):
    width, height = SIZES[name]
    rng = np.random.default_rng(len(name) + width)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def annotation(name):
    items = ''.join(f'<object><name>Tree</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin>'
                    f'<xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>'
                    for a, b, c, d in BOXES[name])
    width, height = SIZES[name]
    return (f'<annotation><size><width>{width}</width><height>{height}</height></size>{items}'
            '</annotation>').encode()


def members():
    found = {'fakeforest-1.0.dist-info/licenses/LICENSE': b'MIT',
             'fakeforest-1.0.dist-info/METADATA':
                 b'Metadata-Version: 2.1\nName: fakeforest\nVersion: 1.0\n',
             'fakeforest-1.0.dist-info/WHEEL':
                 b'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
             'fakeforest-1.0.dist-info/RECORD': b''}
    for name in SIZES:
        buffer = io.BytesIO()
        Image.fromarray(picture(name)).save(buffer, 'PNG')
        found[f'fakeforest/data/{name}.png'] = buffer.getvalue()
        found[f'fakeforest/data/{name}.xml'] = annotation(name)
    return found


@pytest.fixture
def setup(tmp_path, wheel):
    """A cache that holds the wheel already, where the result goes, and the source."""
    splits = {'train': (Region('plot_a', stride=20, y1=70),),
              'val_block': (Region('plot_a', stride=40, y0=70),),
              'val': (Region('plot_b', stride=40),)}
    source = TreesSource('fakeforest==1.0', *wheel(NAME, members()), splits=splits,
                         folder='fakeforest/data',
                         licence='fakeforest-1.0.dist-info/licenses/LICENSE', tile=40,
                         disk_bytes=1000)
    return tmp_path / 'cache', tmp_path / 'out' / 'trees', source


def read(out, split):
    return json.loads((out / 'annotations' / f'{split}.json').read_text())


def test_tiles_hold_the_pixels_and_boxes_of_their_place(setup):
    cache, out, source = setup
    counts = prepare_from_wheel(source, out, cache, lambda line: None)
    seen = {split: np.zeros((110, 100), dtype=bool) for split in counts}
    for split, count in counts.items():
        coco = read(out, split)
        assert len(coco['images']) == count['tiles'] and len(coco['annotations']) == count['boxes']
        for item in coco['images']:
            x, y = item['origin']
            seen[split][y:y + 40, x:x + 40] = True
            tile = np.asarray(Image.open(out / 'images' / split / item['file_name']))
            np.testing.assert_array_equal(tile, picture(item['plot'])[y:y + 40, x:x + 40])
            found = {tuple(a['bbox']) for a in coco['annotations'] if a['image_id'] == item['id']}
            expected = set()
            for a, b, c, d in BOXES[item['plot']]:
                x0, y0 = max(a - 1 - x, 0), max(b - 1 - y, 0)
                width, height = min(c - x, 40) - x0, min(d - y, 40) - y0
                if width > 0 and height > 0 and 2 * width * height >= (c - a + 1) * (d - b + 1):
                    expected.add((x0, y0, width, height))
            assert found == expected
        assert all(a['area'] == a['bbox'][2] * a['bbox'][3] for a in coco['annotations'])
        assert len({a['id'] for a in coco['annotations']}) == count['boxes']
    assert counts['val'] == {'tiles': 1, 'boxes': 1, 'most': 1}
    assert seen['train'].any() and not (seen['train'] & seen['val_block']).any()  # held out


def test_the_real_source_holds_out_a_block_and_a_plot():
    train, block, val = (TREES.splits[name] for name in ('train', 'val_block', 'val'))
    (held,) = block
    same = [region for region in train if region.plot == held.plot]
    assert same and all(region.y1 == held.y0 for region in same)
    assert not {region.plot for region in train} & {region.plot for region in val}


def test_a_second_run_changes_nothing_and_what_is_missing_is_made_again(setup):
    cache, out, source = setup
    lines = []
    first = prepare_from_wheel(source, out, cache, lines.append)
    assert lines[-1] == f'written: {out}'
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*')}
    content = (cache / NAME).read_bytes()
    (cache / NAME).unlink()  # a finished result needs neither cache nor network
    assert prepare_from_wheel(source, out, cache, lines.append) == first
    assert {path: path.stat().st_mtime_ns for path in out.rglob('*')} == before
    assert lines[-1] == f'{out} is complete already'

    (cache / NAME).write_bytes(content)
    victim = sorted((out / 'images' / 'val').iterdir())[0]
    content = victim.read_bytes()
    victim.unlink()
    link = out.with_name('link')
    link.symlink_to(out)  # as to a larger disk: it stays, and leads to what is new
    prepare_from_wheel(source, link, cache, lines.append)
    assert victim.read_bytes() == content and link.is_symlink()
    assert sorted(p.name for p in out.parent.iterdir()) == ['link', 'trees']  # nothing left behind


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob('*')}


@pytest.mark.parametrize('manifest', [None, '{}', '[]', '{"files": 3}', '{"files": {"a": 1}}',
                                      'not json', '{"settings": {}, "files": {"mine/own": 9}}'])
def test_a_folder_that_was_not_prepared_is_not_touched(setup, manifest):
    cache, out, source = setup
    (out / 'mine').mkdir(parents=True)
    (out / 'mine' / 'own').write_text('mine')
    if manifest is not None:
        (out / MANIFEST).write_text(manifest)
    before = contents(out.parent)
    with pytest.raises(PrepareError, match='trees holds files .*mine/own'):
        prepare_from_wheel(source, out, cache)
    assert contents(out.parent) == before


def test_files_added_or_changed_are_never_deleted(setup):
    cache, out, source = setup
    prepare_from_wheel(source, out, cache, lambda line: None)
    others = {'notes.txt': 'mine', 'images/val/extra.png': 'mine', '.hidden': 'mine',
              'annotations/train.json': '{}', 'LICENSE': 'another'}
    for name, text in others.items():
        before = (out / name).read_bytes() if (out / name).exists() else None
        (out / name).write_text(text)
        for changed in (source, dataclasses.replace(source, min_inside=0.9)):
            with pytest.raises(PrepareError, match=f'holds files .*: {name}; give another'):
                prepare_from_wheel(changed, out, cache)
            assert (out / name).read_text() == text
        (out / name).unlink() if before is None else (out / name).write_bytes(before)
    (out / 'link').symlink_to(cache)
    with pytest.raises(PrepareError, match='since: link; '):
        prepare_from_wheel(source, out, cache)
    (out / 'link').unlink()

    def meanwhile(line):  # while the folder is built
        (out / 'notes.txt').write_text('mine')
    with pytest.raises(PrepareError, match='since: notes.txt; '):
        prepare_from_wheel(dataclasses.replace(source, min_inside=0.9), out, cache, meanwhile)
    assert (out / 'notes.txt').read_text() == 'mine'
    assert [path.name for path in out.parent.iterdir()] == ['trees']


def test_a_full_disk_is_said_before_anything_is_fetched(setup):
    cache, out, source = setup
    with pytest.raises(PrepareError, match=r'has \d+ MB free, 1000000000000 MB are needed'):
        prepare_from_wheel(dataclasses.replace(source, disk_bytes=10**18), out, cache)


# Looking for the module instead makes setuptools hand distutils back to Python (before 3.12),
# after which torch.compile can't import setuptools in this process.
@pytest.mark.skipif(not any(importlib.metadata.distributions(name='pip')),
                    reason='pip is not installed')
def test_pip_brings_the_wheel_once_and_no_other_file(tmp_path, wheel, monkeypatch):
    """From one folder and no index."""
    _, sha256 = wheel(NAME, members())
    index = (tmp_path / 'cache').rename(tmp_path / 'index')
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(index))
    cache, lines = tmp_path / 'fetched', []
    with pytest.raises(PrepareError, match=f'has sha256 {sha256}, other.whl has {"0" * 64}'):
        fetch_wheel('fakeforest', 'other.whl', '0' * 64, cache, print)
    with pytest.raises(PrepareError, match='could not download fakeforest==2.0 .*No matching'):
        fetch_wheel('fakeforest==2.0', NAME, '0' * 64, cache, print)
    assert list(cache.iterdir()) == []
    (cache / NAME).write_bytes(b'half a wheel')
    args = ('fakeforest==1.0', NAME, sha256, cache, lines.append)
    assert fetch_wheel(*args).read_bytes() == (index / NAME).read_bytes()
    assert 'does not have the expected hash' in lines[0]
    assert [path.name for path in cache.iterdir()] == [NAME]
    monkeypatch.setattr(wheels, '_pip_download', None)
    assert fetch_wheel(*args) == cache / NAME and 'already in' in lines[-1]


def test_boxes_count_from_one_and_include_the_last_pixel():
    box = '<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>' \
          '<ymax>{}</ymax></bndbox></object>'
    text = f'<annotation>{box.format("Tree", 1, 2, 40, 30)}{box.format("Dead", 5, 6, 5, 6)}' \
           '</annotation>'
    np.testing.assert_array_equal(read_voc(text.encode()), [[0, 1, 40, 30], [4, 5, 5, 6]])
    assert read_voc(b'<annotation/>').shape == (0, 4)


@pytest.mark.parametrize('start, stop, tile, stride', [
    (0, 2299, 400, 400), (0, 2299, 400, 200), (2072, 2472, 400, 400), (0, 1249, 400, 400),
    (7, 47, 40, 1), (3, 44, 40, 40)])
def test_tiles_cover_every_pixel_and_stay_inside(start, stop, tile, stride):
    starts = tile_starts(start, stop, tile, stride)
    covered = np.zeros(stop, dtype=int)
    for first in starts:
        covered[first:first + tile] += 1
    assert covered[start:].min() == 1 and not covered[:start].any()
    assert starts == sorted(set(starts)) and starts[-1] + tile == stop
    assert max(np.diff(starts), default=0) <= stride


def test_a_box_exactly_half_inside_stays_and_a_little_less_goes():
    for boxes, left in (([[-10, 0, 10, 5]], [[0, 0, 10, 5]]), ([[-11, 0, 10, 5]], []),
                        (np.zeros((0, 4)), [])):
        assert clip_boxes(np.array(boxes), (0, 0, 20, 20)).tolist() == left
