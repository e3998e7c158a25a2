import numpy as np
import pytest

from mmposenc.engine.prepare.trees import read_voc


def voc(*objects, size=(40, 30)):
    items = ''.join(
        f'<object><name>{name}</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax>'
        f'<ymax>{d}</ymax></bndbox></object>' for name, a, b, c, d in objects)
    return (f'<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size>'
            f'{items}</annotation>').encode()


def test_boxes_count_from_one_and_include_the_last_pixel():
    boxes = read_voc(voc(('Tree', 1, 1, 40, 30), ('Dead', 5, 6, 5, 6)), 'a.xml', (40, 30),
                     ('Tree', 'Dead'))
    np.testing.assert_array_equal(boxes, [[0, 0, 40, 30], [4, 5, 5, 6]])
    assert read_voc(voc(), 'a.xml', (40, 30), ('Tree',)).shape == (0, 4)


@pytest.mark.parametrize('text, message', [
    (b'<annotation>', r'a\.xml is no readable XML: no element found'),
    (b'<annotation/>', r"a\.xml: <width> is None, a number is required"),
    (voc(size=(41, 30)), r'a\.xml is for an image of 41x30 pixels, the image has 40x30'),
    (voc(('Tree', 1, 1, 2, 2), ('Bird', 1, 1, 2, 2)),
     r"a\.xml, object 1: unknown category 'Bird'; known: Tree"),
    (voc(('Tree', 5, 1, 4, 3)), r'a\.xml, object 0: box \(5, 1, 4, 3\) has no area'),
    (voc(('Tree', 0, 1, 4, 3)), r'object 0: box .* leaves the image of 40x30 pixels'),
    (voc(('Tree', 1, 1, 41, 3)), r'object 0: box .* leaves the image of 40x30 pixels'),
    (voc(('Tree', 1, 'x', 4, 3)), r"a\.xml, object 0: <ymin> is 'x', a number is required")])
def test_a_bad_annotation_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        read_voc(text, 'a.xml', (40, 30), ('Tree',))
