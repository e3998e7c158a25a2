"""With a wheel made here: no network."""
import json

import numpy as np
from PIL import Image

from mmposenc.engine.prepare.trees import SPLITS, Region, clip_boxes, write_trees

BOXES = {'plot_a': [(1, 1, 20, 20), (31, 1, 50, 20), (70, 70, 90, 90), (35, 35, 44, 44)],
         'plot_b': [(3, 3, 12, 12)]}
PICTURES = {name: np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
            for name, size in (('plot_a', (110, 100, 3)), ('plot_b', (40, 40, 3)))}


def members(encoded):
    made = {'deepforest-2.1.0.dist-info/licenses/LICENSE': b'MIT'}
    for name, pixels in PICTURES.items():
        made[f'deepforest/data/{name}.png'] = encoded(pixels, 'PNG')
        made[f'deepforest/data/{name}.xml'] = '<annotation>' + ''.join(
            f'<object><bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax>'
            '</bndbox></object>' for a, b, c, d in BOXES[name]) + '</annotation>'
    return made


def test_tiles_hold_the_pixels_and_boxes_of_their_place(tmp_path, archive, encoded):
    splits = {'train': (Region('plot_a', stride=20, y1=70),),
              'val_block': (Region('plot_a', stride=40, y0=70),),
              'val': (Region('plot_b', stride=40),)}
    counts = write_trees(archive(members(encoded)), tmp_path, splits, tile=40)
    seen = {split: np.zeros((110, 100), dtype=bool) for split in counts}
    for split, count in counts.items():
        coco = json.loads((tmp_path / 'annotations' / f'{split}.json').read_text())
        assert len(coco['images']) == count['tiles'] and len(coco['annotations']) == count['boxes']
        for item in coco['images']:
            x, y = item['origin']
            seen[split][y:y + 40, x:x + 40] = True
            tile = np.asarray(Image.open(tmp_path / 'images' / split / item['file_name']))
            np.testing.assert_array_equal(tile, PICTURES[item['plot']][y:y + 40, x:x + 40])
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
    assert counts['val'] == {'tiles': 1, 'boxes': 1}
    assert seen['train'].any() and not (seen['train'] & seen['val_block']).any()  # held out


def test_the_real_source_holds_out_a_block_and_a_plot():
    (held,) = SPLITS['val_block']
    same = [region for region in SPLITS['train'] if region.plot == held.plot]
    assert same and all(region.y1 == held.y0 for region in same)
    assert not {each.plot for each in SPLITS['train']} & {each.plot for each in SPLITS['val']}


def test_a_box_exactly_half_inside_stays_and_a_little_less_goes():
    for boxes, left in (([[-10, 0, 10, 5]], [[0, 0, 10, 5]]), ([[-11, 0, 10, 5]], []),
                        (np.zeros((0, 4)), [])):
        assert clip_boxes(np.array(boxes), (0, 0, 20, 20)).tolist() == left
