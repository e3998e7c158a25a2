"""Every encoding has a figure, and files are fit for a paper."""
import re
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest
from examples import RELATIVE, SMALL, TOKEN
from PIL import Image
from scripts import short
from tinyfigures import deit, draw, subject

from mmposenc.encodings import ENCODINGS, OffsetBiasEncoding
from mmposenc.lab.figures import save_figure
from mmposenc.lab.figures.paper_figures import (
    FIGURES,
    SUITS,
    Choice,
    draw_figure,
    encodings_of,
    suiting,
)
from mmposenc.lab.figures.subjects import NothingToShow

SVG = '{http://www.w3.org/2000/svg}'


def encoded(name):
    """A small model with the first example of an encoding."""
    examples = {**RELATIVE, **TOKEN}
    cfg = next(cfg for cfg in examples.values() if cfg['type'] == name)
    key = 'pos_encoding' if name in {cfg['type'] for cfg in TOKEN.values()} else 'rel_pos_encoding'
    return deit(num_layers=2, **{key: {**SMALL.get(name, {}), **cfg}})


@pytest.mark.parametrize('name', short(ENCODINGS, 'PEG', 'LearnedPositionEmbedding', 'IRPE', 'LePE',
                                       'RotaryEmbedding', 'CombinedRPE', 'CoPE', 'ALiBi2D'))
def test_every_encoding_has_a_figure(name):
    """What it adds by offset, a relative one, and the similarity of positions, a token one."""
    model = subject(encoded(name))
    found = [each for each in suiting(model) if each.encoding]
    kinds = {each.encoding for each in found}
    if name in ('LePE', 'CRPE'):  # neither logits nor tokens get anything added
        assert not found
        return
    rotary = name.startswith(('Rotary', 'LieRE', 'ComRoPE', 'GTA'))
    usual = 'similarity' if name in {cfg['type'] for cfg in TOKEN.values()} else (
        'rotary' if rotary else 'bias')
    assert usual in {each.figure for each in found}
    assert {part for kind in kinds for part in kind.split(' + ')} == set(encodings_of(model.model))
    drawing = draw_figure(usual, [model], Choice(width=3.3))
    assert 'untrained' in drawing.figure.get_suptitle()
    assert all(np.isfinite(each).any() for each in drawing.arrays.values())
    assert drawing.figure.get_figwidth() == pytest.approx(3.3)


def test_tables_name_what_there_is():
    assert set(SUITS) < set(ENCODINGS) - {'CombinedRPE'}
    assert {figure for some in SUITS.values() for figure in some} <= set(FIGURES)


class Own(OffsetBiasEncoding):
    """An encoding of a user's own."""

    def __init__(self, num_heads, *, num_prefix_tokens=0):
        super().__init__()
        self._set_heads(num_heads, num_prefix_tokens)

    def offset_table(self, rows, cols, query):
        return -(rows[:, None].abs() + cols.abs())[None]


def test_blocks_of_a_deeper_model():
    """The first and the last of a kind, attention of the last layer, PEGs by their own number."""
    model = deit(pos_encoding=[dict(type='mmposenc.LearnedPositionEmbedding'),
                               dict(type='mmposenc.PEG')],
                 rel_pos_encoding=dict(type=Own))
    found = [(each.figure, each.block, each.encoding) for each in suiting(subject(model))]
    learned, peg, own = 'LearnedPositionEmbedding', 'PEG', 'Own'
    assert found == [
        ('similarity', 0, learned), ('added', 0, learned), ('kernels', 0, peg), ('added', 1, peg),
        ('similarity', 1, peg), ('bias', 0, own), ('bias', 2, own), ('references', 0, own),
        ('overlay', 2, ''), ('rollout', 2, ''), ('matrix', 2, '')]
    assert encodings_of(model) == [learned, peg, own]
    shrinking = deit(pos_encoding=dict(type='mmposenc.PEG', padding='none'))
    assert [each.figure for each in suiting(subject(shrinking)) if each.encoding] == ['kernels']
    on_values = deit(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='v'))
    assert 'buckets' in [each.figure for each in suiting(subject(on_values))]
    with pytest.raises(NothingToShow):
        draw('bias', on_values)


def test_letters_are_text_in_files(tmp_path, width=3.3):
    def drawn():
        return draw('bias', deit(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias')),
                    width=width).figure

    pdf = save_figure(drawn(), tmp_path / 'a.pdf').read_bytes()
    assert b'/FontFile2' in pdf and b'/Type3' not in pdf  # TrueType, in the file
    assert re.search(rb'/MediaBox \[ 0 0 ([\d.]+)', pdf)[1] == str(72 * width).encode().rstrip(
        b'0').rstrip(b'.')
    page = zlib.decompress(re.search(rb'stream\r?\n(.*?)\r?\nendstream', pdf, re.DOTALL)[1])
    shown = [b''.join(re.findall(rb'\((.*?)\)', line)).replace(b'\0', b'')
             for line in re.findall(rb'\[([^]]*)\]\s*TJ', page)]  # two bytes a letter
    assert {b'head 0', b'head 1'} <= set(shown)
    svg = save_figure(drawn(), tmp_path / 'a.svg')
    tree = ElementTree.parse(svg)
    texts = {''.join(each.itertext()).strip() for each in tree.iter(f'{SVG}text')}
    assert {'head 0', 'head 1', 'key - query, rows', 'key - query, columns'} <= texts
    # Nothing is pixels but the two maps: neither colour bars nor axes.
    assert len(list(tree.iter(f'{SVG}image'))) == pdf.count(b'/Subtype /Image') == 2
    assert svg.read_bytes() == save_figure(drawn(), tmp_path / 'b.svg').read_bytes()
    with Image.open(save_figure(drawn(), tmp_path / 'a.png', dpi=200)) as image:
        assert image.width == int(200 * width)
        full = np.asarray(image.convert('RGB'), int)
    with Image.open(save_figure(drawn(), tmp_path / 'c.png', dpi=200, small=True)) as image:
        assert image.mode == 'P'
        few = np.asarray(image.convert('RGB'), int)
    assert np.abs(full - few).mean() < 2
    assert (tmp_path / 'c.png').stat().st_size < (tmp_path / 'a.png').stat().st_size


def test_no_text_runs_over_another_or_out_of_the_figure():
    """Titles and labels of neighbouring panels, as they are drawn in a column of a paper."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    figures = [draw('bias', deit(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias'),
                                 num_heads=4), width=3.3).figure,
               draw('buckets', deit(rel_pos_encoding=dict(type='mmposenc.IRPE')), width=7.0).figure,
               draw('overlay', deit(), width=3.3, places=((0.1, 0.1), (0.6, 0.6))).figure]
    for figure in figures:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        bars = [bar for axes in figure.axes for bar in axes.child_axes]
        texts = [text for axes in [*figure.axes, *bars]
                 for text in (axes.title, axes.xaxis.label, axes.yaxis.label) if text.get_text()]
        boxes = [text.get_window_extent(renderer) for text in [*texts, figure._suptitle]]
        for place, box in enumerate(boxes):
            assert box.x0 >= -1 and box.y0 >= -1, texts[place]
            assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
            assert not any(box.overlaps(other) for other in boxes[place + 1:]), texts[place]
