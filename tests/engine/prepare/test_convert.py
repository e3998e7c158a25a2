"""Labels of other tools: the same boxes from each, and nothing hostile gets through."""
import io
import json
import os

import numpy as np
import pytest
from PIL import Image

from mmposenc.commands.prepare import main
from mmposenc.engine.prepare import labels
from mmposenc.engine.prepare.convert import convert_labels
from mmposenc.engine.prepare.folders import PrepareError
from mmposenc.engine.prepare.labels import Picture
from mmposenc.engine.prepare.names import yolo_description
from mmposenc.engine.prepare.parts import draw_parts, parts_of_folders

VOC = ('<annotation><size><width>64</width><height>48</height></size><object><name>disc</name>'
       '<bndbox><xmin>25</xmin><ymin>13</ymin><xmax>40</xmax><ymax>36</ymax></bndbox></object>'
       '</annotation>')


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, 'PNG')
    return buffer.getvalue()


#: Ten rows of the second class, two without a label, and the first class.
MAP = np.zeros((48, 64), np.uint8)
MAP[:10], MAP[10:12] = 1, 255
GOOD = {'yolo': ('txt', '1 0.5 0.5 0.25 0.5\n'), 'voc': ('xml', VOC),
        'masks': ('png', png(Image.fromarray(MAP)))}


def read_labels(kind, source):
    return labels.read_labels(kind, source, yolo_description(source)['names'])


def snapshot(root):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob('*')
            if path.is_file()}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def picture(path, size=(64, 48), mode='RGB', value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def folder(tmp_path, kind, texts, folders=('images', 'labels')):
    """A source with a picture a text; None has no file."""
    source, (suffix, _) = tmp_path / 'source', GOOD[kind]
    for name, text in texts.items():
        picture(source / folders[0] / f'{name}.jpg')
        if text is not None:
            write(source / folders[1] / f'{name}.{suffix}', text)
    if kind == 'yolo':
        write(source / 'data.yaml', 'names: {1: disc, 0: square}\n')
    if kind == 'masks':
        write(source / 'classes.txt', 'square\ndisc\n')
    return source


@pytest.mark.parametrize('kind', ['yolo', 'voc'])
@pytest.mark.parametrize('folders', [('images', 'labels'), ('JPEGImages', 'Annotations'), ('', '')])
def test_the_same_box_comes_out_of_each(tmp_path, kind, folders):
    text = GOOD[kind][1]
    source = folder(tmp_path, kind, {'a/1': text, 'b/1': text, 'c': text}, folders)
    before, out = snapshot(source), tmp_path / 'out'
    counts = convert_labels(kind, source, out, val=0.4, log=lambda line: None)
    assert snapshot(source) == before
    assert counts['train']['disc'] == 2 and counts['val']['disc'] == 1
    names = {}
    for part in ('train', 'val'):
        told = json.loads((out / f'{part}.json').read_text())
        classes = {each['id']: each['name'] for each in told['categories']}
        names |= {each['file_name']: part for each in told['images']}
        for each in told['annotations']:
            assert each['bbox'] == [24, 12, 16, 24] and classes[each['category_id']] == 'disc'
    assert set(names) == {'a/1.jpg', 'b/1.jpg', 'c.jpg'}
    for name, part in names.items():
        original = source / folders[0] / name
        assert (out / part / name).read_bytes() == original.read_bytes()


def voc(**changes):
    text = VOC
    for key, value in changes.items():
        text = text.replace(f'<{key}>{dict(xmin=25, xmax=40, width=64, name="disc")[key]}<',
                            f'<{key}>{value}<')
    return text


BOMB = '<!DOCTYPE a [<!ENTITY b "bbbb">' + ''.join(
    f'<!ENTITY c{i} "&b;&b;&b;">' for i in range(9)) + ']><annotation>&c8;</annotation>'
#: What a file holds, and what is said behind its name.
BAD = {
    'yolo': [('1 .5 .5 -.25 .5', ':1: box of width -16'), ('1 nan .5 .25 .5', ':1: box of'),
             ('1 .5 .5 inf .5', ':1: box of'), ('7 .5 .5 .25 .5', ':1: class 7 is not among 0 to'),
             ('-1 .5 .5 .25 .5', ':1: class -1'), ('1 .5 .5', ':1: 2 numbers'),
             ('\n1 .5 .5 .2 .2 .9', ':2: 5 numbers'), ('disc .5 .5 .2 .2', 'the whole number'),
             ('1 24 12 16 24', 'and no pixels'), ('1 1.02 .5 .2 .5', 'is more than half outside'),
             ('1 .5 .5 .001 .5', 'thinner than a pixel'),
             ('1 .1 .1 .2 .2 .3', ':1: 5 numbers'), ('1 .1 .1 .2 .2 .3 .1 .4', 'no outline'),
             ('1 .1 .1 nan .2 .3 .1', 'not finite'), (b'\xff\xfe1', "can't decode byte")],
    'voc': [(voc(xmin=45), 'object 1: corners'), (voc(xmin='nan'), 'not finite'),
            (voc(xmin=''), 'object 1: could not convert'), (voc(name=''), 'class'),
            (voc(name='ring'), "class 'ring' is not among"), (voc(width=48), 'is for a picture of'),
            (voc(xmax='1e400'), 'not finite'), ('', 'no element found'), (VOC[:80], 'unclosed'),
            (BOMB, 'DOCTYPE'), (BOMB.encode('utf-16'), 'DOCTYPE'),
            ('<?xml version="1.0" encoding="none"?>' + VOC, 'unknown encoding: none'),
            (VOC.replace('disc', 'ö').encode('latin-1'), "can't decode")],
    'masks': [(png(Image.new(mode, size, value)), said) for mode, size, value, said in (
        ('RGB', (64, 48), 0, 'mode is RGB'), ('L', (48, 64), 0, 'its size is 48x64'),
        ('L', (64, 48), 2, 'holds the label 2'), ('I;16', (64, 48), 0, 'mode is I'))]}


@pytest.mark.parametrize('kind, text, said', [(kind, *each) for kind in BAD for each in BAD[kind]])
def test_a_bad_label_is_reported_with_its_file(tmp_path, kind, text, said):
    suffix, good = GOOD[kind]
    source = folder(tmp_path, kind, {'a': good, 'b': text, 'c': good})
    lines, out = [], tmp_path / 'out'
    arguments = dict(classes=['square', 'disc'], val=0.3, log=lines.append)
    with pytest.raises(PrepareError, match='^1 problem in'):
        convert_labels(kind, source, out, **arguments)
    assert lines[0].startswith(f'{source}/labels/b.{suffix}:') and said in lines[0]
    assert len(lines) == 1 and not out.exists()
    counts = convert_labels(kind, source, out, skip_bad=True, **arguments)
    assert [part['pictures'] for part in counts.values()] == [1, 1]


def test_boxes_are_cut_at_the_edge_and_outlines_kept(tmp_path):
    text = '0 0.1 0.5 0.25 0.5\n\n1 0.25 0.25 0.5 0.25 0.5 1.01\n'
    source = folder(tmp_path, 'yolo', {'a': text, 'empty': '', 'none': None})
    found = read_labels('yolo', source)
    assert not found.problems and found.classes == ['square', 'disc']
    first, second = found.pictures[0].things
    np.testing.assert_allclose(first.box, (0, 12, 14.4, 24))
    np.testing.assert_allclose(second.segmentation, [[16, 12, 32, 12, 32, 48]])
    np.testing.assert_allclose(second.box, (16, 12, 16, 36))
    assert [len(each.things) for each in found.pictures] == [2, 0, 0]  # nothing is in two of them


def test_masks_keep_their_labels(tmp_path):
    indices = Image.new('P', (64, 48), 1)
    indices.putpalette([0, 0, 0, 200, 0, 0])
    good = GOOD['masks'][1]
    source, lines = folder(tmp_path, 'masks', {'a': good, 'b': good, 'c': png(indices)}), []
    counts = convert_labels('masks', source, tmp_path / 'out', val=0.4, log=lines.append)
    for name in ('training', 'validation'):
        for path in (tmp_path / 'out' / 'annotations' / name).iterdir():
            expected = np.asarray(Image.open(source / 'labels' / path.name))
            np.testing.assert_array_equal(np.asarray(Image.open(path)), expected)
            assert Image.open(path).mode == 'L'
    total = sum(part['disc'] for part in counts.values())
    assert total == 2 * 640 + 48 * 64 and [part['pictures'] for part in counts.values()] == [2, 1]
    assert (tmp_path / 'out' / 'classes.txt').read_text() == 'square\ndisc\n'
    assert lines[0] == 'classes: square, disc' and '128 unlabelled (255)' in lines[2]
    for name in ('a', 'b', 'c'):  # as tools write foreground
        write(source / 'labels' / f'{name}.png', png(Image.fromarray(MAP // 255 * 255)))
    convert_labels('masks', source, tmp_path / 'foreground', val=0.4, log=lines.append)
    assert lines[-2].startswith('warning: train has nothing of disc; 255 is unlabelled: if ')


def test_a_share_is_drawn_and_folders_say_parts(tmp_path):
    def pictures(*keys):
        return [Picture(key, None, (1, 1)) for key in keys]

    many = pictures(*(f'{folder}/{number}' for folder in 'ab' for number in range(12)))
    for val, number in ((0.3, 7), (0.999, 23), (0.01, 1)):
        parts = draw_parts(many, val)
        assert [*parts.values()].count('val') == number and {*parts.values()} == {'train', 'val'}
        assert parts == draw_parts(many[::-1], val)  # the order of files means nothing
    assert len({key[0] for key, part in draw_parts(many, 0.3).items() if part == 'val'}) == 2
    assert parts_of_folders(many) == {}
    folders = {'train/x_1': 'train', 'training/x_2': 'train', 'valid/x_3': 'val', 'test/x': 'test'}
    assert parts_of_folders(pictures(*folders)) == folders
    with pytest.raises(PrepareError, match='must be in a folder train, val or test, as others are'):
        parts_of_folders(pictures('train/1', 'loose', 'val/2'))
    with pytest.raises(PrepareError, match='1 picture: two are needed'):
        draw_parts(pictures('a'))


@pytest.mark.parametrize('kind, lists, expected', [
    ('voc', {'ImageSets/Main/train.txt': 'b\nd\n', 'ImageSets/Main/val.txt': 'a\n',
             'ImageSets/Layout/val.txt': 'b\n'}, (['b.jpg', 'd.jpg'], ['a.jpg'])),
    ('yolo', {'train.txt': './images/a.jpg\r\nimages/b.jpg\r\n\r\n', 'val.txt': 'c.jpg'},
     (['a.jpg', 'b.jpg'], ['c.jpg'])),
    ('yolo', {'val.txt': 'a\n'}, 'name no picture for train'),
    ('yolo', {'train.txt': 'a\n\nb\n', 'val.txt': 'c\n'}, 'train.txt:2: the line is empty'),
    ('yolo', {'train.txt': 'a\nb\n', 'val.txt': 'b\n'}, 'the picture b is in train, too'),
    ('yolo', {'data.yaml': 'names: [square, disc]\ntrain: images/x\nval: [../images/y, z.txt]\n',
              'images/x/1.txt': '', 'images/y/1.txt': '', 'z.txt': 'd'},
     (['x/1.jpg'], ['d.jpg', 'y/1.jpg'])),
    ('yolo', {'data.yaml': 'names: [square, disc]\ntrain: images/x\nval: images/y\n'},
     'name no picture for val'),
    ('yolo', {'data.yaml': 'names: [square, disc]\ntrain: images\nval: images\n'}, None)])
def test_lists_and_data_yaml_say_the_parts(tmp_path, kind, lists, expected):
    source, lines = folder(tmp_path, kind, dict.fromkeys('abcd', GOOD[kind][1])), []
    for name, text in lists.items():
        write(source / name, text)
        if name.startswith('images/'):
            picture((source / name).with_suffix('.jpg'))
    if isinstance(expected, str):
        with pytest.raises((PrepareError, ValueError), match=expected):
            convert_labels(kind, source, tmp_path / 'out')
        return
    convert_labels(kind, source, tmp_path / 'out', log=lines.append)
    assert expected is None or expected == tuple(sorted(each['file_name'] for each in json.loads(
        (tmp_path / f'out/{part}.json').read_text())['images']) for part in ('train', 'val'))
    start = 'in no part, left out: ' if expected else 'a random share of 0.2 of the pictures is '
    assert any(line.startswith(start) for line in lines)


def test_two_pictures_of_one_name(tmp_path):
    source = folder(tmp_path, 'yolo', {'train/A': GOOD['yolo'][1], 'training/A': '', 'val/A': ''})
    with pytest.raises(PrepareError, match='A.jpg: a picture of another folder has the name'):
        convert_labels('yolo', source, tmp_path / 'out')
    picture(source / 'images' / 'val' / 'A.png')
    with pytest.raises(PrepareError, match='1 problem'):
        convert_labels('yolo', source, tmp_path / 'out')
    maps = tmp_path / 'maps'  # of pictures whose suffixes tell them apart
    for name in ('train/a.jpg', 'training/a.png', 'val/b.jpg'):
        picture(maps / 'images' / name)
        picture((maps / 'masks' / name).with_suffix('.png'), mode='L')
    with pytest.raises(PrepareError, match='a.png: a picture of another folder has the name a.png'):
        convert_labels('masks', maps, tmp_path / 'out', ['one'])
    assert not (tmp_path / 'out').exists()


def test_nothing_is_overwritten_and_broken_pictures_are_reported(tmp_path, capsys):
    text = GOOD['yolo'][1]
    source = folder(tmp_path, 'yolo', {'a': text, 'b': text, 'c': text, 'd': text})
    (source / 'images/c.jpg').write_bytes((source / 'images/c.jpg').read_bytes()[:200])
    write(source / 'labels/lost.txt', text)
    command = ['--from', 'yolo', str(source), '--out']
    write(tmp_path / 'full' / 'file', '')
    for out, said in ((source / 'out', 'must not lie in each other'),
                      (tmp_path, 'must not lie in each other'),
                      (tmp_path / 'full', 'exists; give another folder'),
                      (tmp_path / 'out', '2 problems')):
        with pytest.raises(SystemExit, match=said):
            main([*command, str(out)])
    printed = capsys.readouterr().out
    assert 'c.jpg: ' in printed and 'lost.txt: there is no picture' in printed
    main([*command, str(tmp_path / 'out'), '--skip-bad', '--val', '0.4'])
    assert 'train: 2 pictures, 0 square, 2 disc' in capsys.readouterr().out


LAUGHS = 'a: &a [x]\n' + ''.join(f'{b}: &{b} [{", ".join([f"*{a}"] * 9)}]\n' for a, b in zip(
    'abcdefghi', 'bcdefghij', strict=True)) + 'names: *j\n'


@pytest.mark.parametrize('text, said', [
    ('names: 3\n', "they are '3'"), ('- a\n', 'names must be a list'),
    ('names: a, b\n', "they are 'a, b'"), ('names: [a, [yes]]\n', "they are "),
    ('names: {1: a, 2: b}\n', 'from 0 on with a name each .lacks 0'), (LAUGHS, 'aliases'),
    ('names: [a, " a"]\n', r"classes \['a', 'a'\] must be words, and no two the same"),
    ('names: [a]\nkpt_shape: [17, 3]\n', r"kpt_shape=\['17', '3'\]: labels of key points are not"),
    ('names: [ä]\n'.encode('latin-1'), "can't decode"), ('lr: 3\n', 'the classes by --classes')])
def test_numbers_need_names(tmp_path, text, said):
    source = folder(tmp_path, 'yolo', {'a': '', 'b': ''})
    write(source / 'data.yaml', text)
    with pytest.raises(PrepareError, match=said):
        convert_labels('yolo', source, tmp_path / 'out')
    (source / 'data.yaml').unlink()
    for text, said in (('ä'.encode('latin-1'), 'classes.txt must be text in UTF-8'),
                       ('cat\n\ndog\n', 'classes.txt:2: the line is empty')):
        write(source / 'classes.txt', text)
        with pytest.raises(ValueError, match=said):
            convert_labels('yolo', source, tmp_path / 'out')


@pytest.mark.parametrize('files, expected', [
    ({'data.yaml': 'names: [010, 1_000, 1:30, 1.10, no, 2024-01-01]'},
     ['010', '1_000', '1:30', '1.10', 'no', '2024-01-01']),
    ({'data.yaml': 'names: [a]', 'args.yaml': 'names: [b]'}, ['a']),
    ({'one.yaml': 'names: [a]', 'two.yml': 'names: [b]'}, 'name other classes'),
    ({'data.yaml': 'names: [a]', 'classes.txt': 'b\n'}, 'name other classes')])
def test_names_are_those_that_are_written(tmp_path, files, expected):
    for name, text in files.items():
        write(tmp_path / name, text)
    if isinstance(expected, list):
        assert yolo_description(tmp_path)['names'] == expected
        return
    with pytest.raises(PrepareError, match=expected):
        yolo_description(tmp_path)


def test_files_of_tools_and_of_windows_are_understood(tmp_path):
    source = folder(tmp_path, 'yolo', {'a': GOOD['yolo'][1], 'b': ''})
    write(source / 'data.yaml', f'names: {({str(i): f"{i}" for i in range(10, -1, -1)})}')
    write(source / 'a.yaml', 'lr: 3')
    write(source / 'README.dataset.txt', 'made by a tool')
    found = read_labels('yolo', source)
    assert not found.problems and found.classes == [str(i) for i in range(11)]
    (source / 'data.yaml').unlink()
    write(source / 'classes.txt', b'\xef\xbb\xbfsquare\r\ndisc\r\n')
    assert read_labels('yolo', source).classes == ['square', 'disc']


def test_linked_folders_are_read_once_and_pipes_never(tmp_path):
    source = folder(tmp_path, 'yolo', {'a': GOOD['yolo'][1]})
    picture(tmp_path / 'disk' / 'b.jpg')
    os.mkfifo(source / 'images' / 'pipe.jpg')
    for name, target in (('more', 'disk'), ('more2', 'disk'), ('up', '.'), ('images/in', 'source')):
        (source / name).symlink_to(tmp_path / target)
    assert sorted(each.path.name for each in read_labels('yolo', source).pictures) == [
        'a.jpg', 'b.jpg']


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig', 'gbk', 'utf-16', 'latin-1'])
def test_xml_is_read_in_the_encoding_that_it_declares(tmp_path, encoding):
    name = 'ö' if encoding == 'latin-1' else '猫'
    head = f'<?xml version="1.0" encoding="{encoding.replace("-sig", "")}"?>'
    text = head + VOC.replace('disc', name)
    source = folder(tmp_path, 'voc', {'a': text.encode(encoding), 'b': VOC.replace('disc', 'Ö')})
    found = read_labels('voc', source)
    assert found.classes == sorted([name, 'Ö']) and not found.problems
    assert any('are two classes' in note for note in found.notes) == (name == 'ö')


def test_difficult_objects_are_not_counted_and_passed_over_in_evaluation(tmp_path):
    hard = VOC.replace('<bndbox>', '<difficult>1</difficult><bndbox>')
    texts = {'train/a': hard, 'val/b': VOC, 'val/without': None}
    source, lines = folder(tmp_path, 'voc', texts), []
    found = read_labels('voc', source)
    assert [each.things[0].crowd for each in found.pictures] == [True, False]
    assert found.notes == ['without labels, left out: 1 picture']
    counts = convert_labels('voc', source, tmp_path / 'out', log=lines.append)
    assert counts['train'] == {'pictures': 1, 'disc': 0, 'ignored (iscrowd)': 1}
    assert 'train has nothing of disc; training ignores objects that are marked' in lines[-1]
    for text, said in ((hard, 'all 2 objects are marked difficult or iscrowd'),
                       ('<annotation></annotation>', 'hold no object')):
        for name in ('train/a', 'val/b'):
            write(source / f'labels/{name}.xml', text)
        with pytest.raises(PrepareError, match=said):
            convert_labels('voc', source, tmp_path / 'other')


@pytest.mark.parametrize('table', ['# of CVAT\nvoid:9,9,9::\nsquare:0,0,0::\nbig disc:255,0,0::',
                                   '9 9 9 Void\n0 0 0\tsquare\n255 0 0  big disc\n',
                                   'name,r,g,b\nvoid,9,9,9\nsquare,0,0,0\nbig disc,255,0,0'])
def test_masks_in_colours(tmp_path, capsys, table):
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[MAP == 1], pixels[MAP == 255] = (255, 0, 0), 9
    mask = png(Image.fromarray(pixels))
    source = folder(tmp_path, 'masks', {'train/a': mask, 'val/b': mask})
    write(tmp_path / 'table.txt', table)
    command = ['--from', 'masks', str(source), '--out', str(tmp_path / 'out'), '--colours']
    main([*command, str(tmp_path / 'table.txt'), '--classes', 'square,big disc'])
    for path in (tmp_path / 'out' / 'annotations').rglob('*.png'):
        np.testing.assert_array_equal(np.asarray(Image.open(path)), MAP)
    for text, said in (('a:0,0,0\nb:255,0,0', '2 problems'), ('a:0,0,256', 'must be the name'),
                       ('a:0,0,0\na:1,1,1', 'no two the same'), ('a,b,c,d', 'must be the name')):
        write(tmp_path / 'table.txt', text)
        with pytest.raises(SystemExit, match=said):
            main([*command[:-2], str(tmp_path / 'no'), '--colours', str(tmp_path / 'table.txt')])
    assert 'of its colours, such as (9, 9, 9), are not in the' in capsys.readouterr().out


SQUARE = dict(iscrowd=0, bbox=[4, 4, 20, 20], category_id=2)


@pytest.mark.parametrize('files', [
    {'annotations/instances_train2017.json': 'train2017/', 'annotations/captions_val.json': None,
     'annotations/instances_val2017.json': 'val2017/'},
    {'train/_annotations.coco.json': 'train/', 'valid/_annotations.coco.json': 'valid/'},
    {'instances_default.json': 'images/'}])
def test_files_of_coco(tmp_path, files):
    """One category has no object, as that of Roboflow."""
    source, lines = tmp_path / 'source', []
    for name, place in files.items():
        images = [dict(id=i, file_name=f'{i}.png', width=64, height=48) for i in range(3)]
        anns = [dict(SQUARE, id=5, image_id=0, area=99.5), dict(
            SQUARE, id=6, image_id=1, category_id=7, segmentation=[[1, 1, 70, 1, 1, 20]])]
        for image in images if place else []:
            picture(source / place / image['file_name'])
        write(source / name, json.dumps(dict(
            images=images, annotations=anns, categories=[
                dict(id=0, name='all'), dict(id=7, name='disc'), dict(id=2, name='square')])
            if place else [1]))
    counts = convert_labels('coco', source, tmp_path / 'out', val=0.4, log=lines.append)
    assert lines[:2] == ['of no object, left out: all', 'classes: disc, square']
    assert sum(part['square'] for part in counts.values()) == sum(map(bool, files.values()))
    for part in ('train', 'val'):
        data = json.loads((tmp_path / 'out' / f'{part}.json').read_text())
        for ann in data['annotations']:
            assert (ann['area'], ann.get('segmentation')) == (
                (99.5, None) if ann['category_id'] == 2 else (400, [[1, 1, 64, 1, 1, 20]]))
    place, = [source / name for name in files][-1:]
    place.write_text(place.read_text().replace('"area": 99.5', '"bbox": [-30, 4, 20, 20]'))
    with pytest.raises(PrepareError, match='1 problem in'):
        convert_labels('coco', source, tmp_path / 'no', log=lines.append)
    assert 'annotation 5 in' in lines[-2] and 'is more than half outside' in lines[-2]
