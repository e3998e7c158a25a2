"""With a wheel made here: no network."""
import dataclasses
import importlib.metadata
import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from mmposenc.engine.prepare import common
from mmposenc.engine.prepare.common import PrepareError, fetch_wheel, sha256_of
from mmposenc.engine.prepare.trees import TREES, Region, TreesSource, prepare_trees

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


def make_wheel(folder, omit=(), replace=()):
    members = {'fakeforest-1.0.dist-info/licenses/LICENSE': b'MIT',
               'fakeforest-1.0.dist-info/METADATA':
                   b'Metadata-Version: 2.1\nName: fakeforest\nVersion: 1.0\n',
               'fakeforest-1.0.dist-info/WHEEL':
                   b'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
               'fakeforest-1.0.dist-info/RECORD': b'',
               'fakeforest/data/unused.csv': b'a,b'}
    for name in SIZES:
        buffer = io.BytesIO()
        Image.fromarray(picture(name)).save(buffer, 'PNG')
        members[f'fakeforest/data/{name}.png'] = buffer.getvalue()
        members[f'fakeforest/data/{name}.xml'] = annotation(name)
    members.update(replace)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / NAME, 'w') as archive:
        for name, content in members.items():
            if name not in omit:
                archive.writestr(name, content)
    return folder / NAME


@pytest.fixture
def setup(tmp_path):
    """A cache that holds the wheel already, where the result goes, and the source."""
    return _setup(tmp_path)


def _setup(tmp_path, **changes):
    wheel = make_wheel(tmp_path / 'cache', **changes)
    splits = {'train': (Region('plot_a', stride=20, y1=70),),
              'val_block': (Region('plot_a', stride=40, y0=70),),
              'val': (Region('plot_b', stride=40),)}
    source = TreesSource('fakeforest==1.0', NAME, sha256_of(wheel), splits,
                         folder='fakeforest/data',
                         licence='fakeforest-1.0.dist-info/licenses/LICENSE', tile=40,
                         disk_bytes=1000)
    return tmp_path / 'cache', tmp_path / 'out' / 'trees', source


def read(out, split):
    return json.loads((out / 'annotations' / f'{split}.json').read_text())


def test_tiles_hold_the_pixels_and_boxes_of_their_place(setup):
    cache, out, source = setup
    counts = prepare_trees(out, cache, source=source, log=lambda line: None)
    for split, count in counts.items():
        coco = read(out, split)
        assert len(coco['images']) == count['tiles'] and len(coco['annotations']) == count['boxes']
        for item in coco['images']:
            x, y = item['origin']
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


def test_no_training_tile_touches_the_held_out_block(setup):
    cache, out, source = setup
    prepare_trees(out, cache, source=source, log=lambda line: None)
    seen = {split: np.zeros((110, 100), dtype=bool) for split in ('train', 'val_block')}
    for split, pixels in seen.items():
        for item in read(out, split)['images']:
            x, y = item['origin']
            pixels[y:y + 40, x:x + 40] = True
    assert seen['train'].any() and seen['val_block'].any()
    assert not (seen['train'] & seen['val_block']).any()


def test_the_real_source_holds_out_a_block_and_a_plot():
    train, block, val = (TREES.splits[name] for name in ('train', 'val_block', 'val'))
    (held,) = block
    same = [region for region in train if region.plot == held.plot]
    assert same and all(region.y1 == held.y0 for region in same)
    assert not {region.plot for region in train} & {region.plot for region in val}


def test_a_second_run_changes_nothing_and_what_is_missing_is_made_again(setup):
    cache, out, source = setup
    lines = []
    first = prepare_trees(out, cache, source=source, log=lines.append)
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*')}
    (cache / NAME).unlink()  # a finished result needs neither cache nor network
    assert prepare_trees(out, cache, source=source, log=lines.append) == first
    assert {path: path.stat().st_mtime_ns for path in out.rglob('*')} == before
    assert lines[-1] == f'{out} is complete already'

    make_wheel(cache)
    source = dataclasses.replace(source, sha256=sha256_of(cache / NAME))
    victim = sorted((out / 'images' / 'val').iterdir())[0]
    content = victim.read_bytes()
    victim.unlink()
    link = out.with_name('link')
    link.symlink_to(out)  # as to a larger disk: it stays, and leads to what is new
    prepare_trees(link, cache, source=source, log=lines.append)
    assert victim.read_bytes() == content and link.is_symlink()
    assert sorted(p.name for p in out.parent.iterdir()) == ['link', 'trees']  # nothing left behind


def test_other_settings_are_built_anew(setup):
    cache, out, source = setup
    prepare_trees(out, cache, source=source, log=lambda line: None)
    splits = dict(source.splits, train=(Region('plot_a', stride=40, y1=70),))
    fewer = prepare_trees(out, cache, source=dataclasses.replace(source, splits=splits),
                          log=lambda line: None)
    assert len(list((out / 'images' / 'train').iterdir())) == fewer['train']['tiles'] == 6


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob('*')}


@pytest.mark.parametrize('manifest', [None, '{}', '[]', '{"files": 3}', '{"files": {"a": 1}}',
                                      'not json', '{"settings": {}, "files": {"mine/own": 9}}'])
def test_a_folder_that_was_not_prepared_is_not_touched(setup, manifest):
    cache, out, source = setup
    (out / 'mine').mkdir(parents=True)
    (out / 'mine' / 'own').write_text('mine')
    if manifest is not None:
        (out / common.MANIFEST).write_text(manifest)
    before = contents(out.parent)
    with pytest.raises(PrepareError, match='trees holds files .*mine/own'):
        prepare_trees(out, cache, source=source)
    assert contents(out.parent) == before


def test_files_added_or_changed_are_never_deleted(setup):
    cache, out, source = setup
    prepare_trees(out, cache, source=source, log=lambda line: None)
    others = {'notes.txt': 'mine', 'images/val/extra.png': 'mine', '.hidden': 'mine',
              'annotations/train.json': '{}', 'LICENSE': 'another'}
    for name, text in others.items():
        before = (out / name).read_bytes() if (out / name).exists() else None
        (out / name).write_text(text)
        for changed in (source, dataclasses.replace(source, min_inside=0.9)):
            with pytest.raises(PrepareError, match=f'holds files .*: {name}; give another'):
                prepare_trees(out, cache, source=changed)
            assert (out / name).read_text() == text
        (out / name).unlink() if before is None else (out / name).write_bytes(before)
    (out / 'link').symlink_to(cache)
    with pytest.raises(PrepareError, match='since: link; '):
        prepare_trees(out, cache, source=source)
    (out / 'link').unlink()

    def meanwhile(line):  # while the folder is built
        (out / 'notes.txt').write_text('mine')
    with pytest.raises(PrepareError, match='since: notes.txt; '):
        prepare_trees(out, cache, log=meanwhile, source=dataclasses.replace(source, min_inside=0.9))
    assert (out / 'notes.txt').read_text() == 'mine'
    assert [path.name for path in out.parent.iterdir()] == ['trees']


@pytest.mark.parametrize('changes, message', [
    ({'omit': ('fakeforest/data/plot_b.png', 'fakeforest/data/plot_a.xml')},
     r'lacks fakeforest/data/plot_a\.xml, fakeforest/data/plot_b\.png'),
    ({'replace': {'fakeforest/data/plot_b.xml': annotation('plot_b').replace(b'Tree', b'Bird')}},
     r"plot_b\.xml, object 0: unknown category 'Bird'"),
    ({'replace': {'fakeforest/data/plot_b.png': b'no picture'}}, 'cannot identify image')])
def test_a_wheel_with_other_content_leaves_nothing_behind(tmp_path, changes, message):
    cache, out, source = _setup(tmp_path, **changes)
    with pytest.raises(PrepareError, match=message):
        prepare_trees(out, cache, source=source)
    assert list(out.parent.iterdir()) == []


def test_a_full_disk_is_said_before_anything_is_fetched(setup):
    cache, out, source = setup
    with pytest.raises(PrepareError, match=r'has \d+ MB free, 1000000000000 MB are needed'):
        prepare_trees(out, cache, source=dataclasses.replace(source, disk_bytes=10**18))


@pytest.fixture
def offline_index(tmp_path, monkeypatch):
    """pip sees one folder and no index."""
    wheel = make_wheel(tmp_path / 'index')
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(wheel.parent))
    return wheel


# Looking for the module instead makes setuptools hand distutils back to Python (before 3.12),
# after which torch.compile can't import setuptools in this process.
@pytest.mark.skipif(not any(importlib.metadata.distributions(name='pip')),
                    reason='pip is not installed')
class TestFetch:
    def test_pip_brings_the_wheel_once(self, offline_index, tmp_path, monkeypatch):
        cache, lines = tmp_path / 'fetched', []
        args = ('fakeforest==1.0', NAME, sha256_of(offline_index), cache, lines.append)
        path = fetch_wheel(*args)
        assert path.read_bytes() == offline_index.read_bytes()
        assert [p.name for p in cache.iterdir()] == [NAME]
        monkeypatch.setattr(common, '_pip_download', None)
        assert fetch_wheel(*args) == path and 'already in' in lines[-1]

    def test_a_damaged_copy_in_the_cache_is_fetched_again(self, offline_index, tmp_path):
        cache, lines = tmp_path / 'fetched', []
        cache.mkdir()
        (cache / NAME).write_bytes(b'half a wheel')
        fetch_wheel('fakeforest==1.0', NAME, sha256_of(offline_index), cache, lines.append)
        assert 'does not have the expected hash' in lines[0]
        assert (cache / NAME).read_bytes() == offline_index.read_bytes()

    def test_another_hash_names_both(self, offline_index, tmp_path):
        cache = tmp_path / 'fetched'
        with pytest.raises(PrepareError, match=f'has sha256 {sha256_of(offline_index)}, expected '
                                               f'{"0" * 64}'):
            fetch_wheel('fakeforest==1.0', NAME, '0' * 64, cache, print)
        assert list(cache.iterdir()) == []

    def test_another_file_is_named(self, offline_index, tmp_path):
        with pytest.raises(PrepareError, match=f'brought {NAME} instead of other.whl'):
            fetch_wheel('fakeforest', 'other.whl', '0' * 64, tmp_path / 'fetched', print)

    def test_pips_own_words_are_passed_on(self, offline_index, tmp_path):
        with pytest.raises(PrepareError, match='could not download fakeforest==2.0 .*No matching'):
            fetch_wheel('fakeforest==2.0', NAME, '0' * 64, tmp_path / 'fetched', print)
