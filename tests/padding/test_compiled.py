"""Networks that padding is kept out of, compiled: one graph for all batches, with the numbers of
eager mode."""
import copy
from types import SimpleNamespace

import pytest
import tinyfamilies as families
import torch
from mmengine.hooks import Hook
from mmengine.registry import MODELS, DefaultScope
from torch._dynamo.testing import CompileCounterWithBackend

from mmposenc.engine.training.compiling import CompileHook
from mmposenc.engine.training.padding_out import KeepPaddingOut
from mmposenc.padding import keep_padding_out
from mmposenc.padding.compiled import compile_networks

pytestmark = pytest.mark.usefixtures('fresh_compiler')
#: Height and width of both images of each batch; two batches have nothing to keep out.
BATCHES = [((64, 96), (50, 64)), ((72, 88), (72, 61)), ((61, 93), (61, 93)), ((96, 64), (40, 64)),
           ((80, 80), (48, 80)), ((64, 64), (64, 48)), ((97, 65), (90, 60)), ((88, 72), (88, 70)),
           ((50, 99), (41, 44)), ((66, 70), (66, 70))]


def retinanet(**head):
    """Two stages of one block of a ResNet-18, whose BatchNorms train, and two levels; and further
    arguments of the head."""
    built = families.build('RetinaNet', 'ResNet-50')
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmdet'):
        built.backbone = MODELS.build(dict(
            type='ResNet', depth=18, num_stages=2, strides=(1, 2), dilations=(1, 1),
            out_indices=(0, 1), base_channels=8, stem_channels=8, norm_eval=False))
        built.neck = MODELS.build(dict(
            type='FPN', in_channels=[8, 16], out_channels=8, num_outs=2))
        built.bbox_head = MODELS.build(dict(
            type='RetinaHead', num_classes=3, in_channels=8, feat_channels=8,
            **{'stacked_convs': 0, **head},
            anchor_generator=dict(type='AnchorGenerator', octave_base_scale=4, scales_per_octave=1,
                                  ratios=[1.0], strides=[4, 8]),
            train_cfg=built.train_cfg, test_cfg=built.test_cfg))
    for stage in (built.backbone.layer1, built.backbone.layer2):
        del stage[1]
    built.data_preprocessor.pad_size_divisor = 1  # batches of any size
    built.test_cfg.score_thr = 0.0
    torch.nn.init.normal_(built.bbox_head.retina_cls.weight)  # boxes of all scores
    return keep_padding_out(built.eval())


def sized(number, sizes):
    return [(*size, 2 * number + i) for i, size in enumerate(sizes)]


def step(model, number):
    """Loss, gradients and statistics after a step on a batch with junk in its padding."""
    model.train().zero_grad()
    loss = families.losses_of(model, sized(number, BATCHES[number]), junk=1e3)
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters()], list(model.buffers())


def compiled_copy(model, backend, **options):
    other = copy.deepcopy(model)
    assert [type(part).__name__ for part in compile_networks(
        other, backend=backend, dynamic=True, fullgraph=True, **options)
            ] == ['ResNet'] * (type(model.backbone).__name__ == 'ResNet') + ['FPN', 'RetinaHead']
    return other


@pytest.mark.slow
def test_training_steps_are_one_graph_for_ten_batches():
    """Backbone, neck and head's maps, forward and backward."""
    eager, counter = retinanet().double(), CompileCounterWithBackend('aot_eager')
    compiled = compiled_copy(eager, counter)
    assert list(compiled.state_dict()) == list(eager.state_dict())
    for number in range(len(BATCHES)):
        torch.testing.assert_close(step(compiled, number), step(eager, number), rtol=1e-6,
                                   atol=1e-6)
    assert counter.frame_count == 1


def behind_a_pvt():
    """A neck and a head whose backbone masks by itself, and is no part of the graph."""
    built = families.build('RetinaNet', 'PVT')
    built.test_cfg.score_thr = 0.0
    return keep_padding_out(built)


@pytest.mark.parametrize('build, batches', [(retinanet, 3), (behind_a_pvt, 1)])
def test_predictions_are_one_graph(build, batches):
    eager, counter = build(), CompileCounterWithBackend('eager')
    compiled = compiled_copy(eager, counter)
    with torch.no_grad():
        for number, sizes in enumerate(BATCHES[:batches]):
            gots, wants = (m(**families.batch(m, sized(number, sizes), junk=1e3), mode='predict')
                           for m in (compiled, eager))
            for got, want in zip(gots, wants, strict=True):
                families.assert_same(want, got)
    assert counter.frame_count == 1


def test_the_hook_compiles_networks_as_one_and_other_blocks_by_themselves():
    assert Hook.priority != KeepPaddingOut.priority == 'VERY_HIGH'  # so it comes first
    said = []
    found = {}
    for backbone in ('ResNet-50', 'PVT'):
        model = families.build('RetinaNet', backbone)
        runner = SimpleNamespace(model=model, logger=SimpleNamespace(info=said.append))
        KeepPaddingOut().before_run(runner)
        for _ in range(2):  # a test may follow a training
            CompileHook(backend='eager').before_run(runner)
        assert said[0] == said.pop()
        assert copy.deepcopy(model).compiled is None and model.compiled is not None
        found[backbone] = said.pop()
    assert "{'ResNet': 1, 'FPN': 1, 'RetinaHead': 1}" in found['ResNet-50']
    assert "{'PVTBlock': 4, 'FPN': 1, 'RetinaHead': 1}" in found['PVT']


@pytest.mark.parametrize(('name', 'backbone', 'compiled'), [
    ('FCOS', 'PVT', ['FPN']),  # GroupNorms of the head
    ('RTMDet', 'ResNet-50', [])])
def test_layers_without_a_form_for_a_tensor_of_sizes_are_left_out(name, backbone, compiled):
    model = keep_padding_out(families.build(name, backbone))
    found = compile_networks(model, backend='eager')
    assert [type(part).__name__ for part in found] == compiled
    assert (model.compiled is not None) == bool(compiled)
