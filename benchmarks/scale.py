"""What COCO's 3x schedule costs on many GPUs, computed: no GPU was at hand.

    python benchmarks/scale.py                       # the tables of docs/scale.md
    python benchmarks/scale.py --flops 1e14 --network 5e10 --workers 4    # other assumptions
    python benchmarks/scale.py --measure             # count the inputs of the tables again

Inputs are counted on a CPU (INPUTS below); all that is said of a machine is an assumption
(:class:`Machine`), and an option.
"""
from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from mmposenc.lab.compare.page.exports import csv_rows

#: Images of COCO's train2017, and epochs of the 3x schedule.
IMAGES, EPOCHS = 118_287, 36
#: Limits of DistributedDataParallel's buckets: the first message is small, so that it leaves early.
FIRST_BUCKET, BUCKET = 2 ** 20, 25 * 2 ** 20
CONFIGS = {'RetinaNet, PVT-tiny': 'detection/pvt/retinanet_pvt-t_fpn_1x_coco.py',
           'DETR-R50, iRPE': 'detection/detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py',
           'DINO-R50': 'detection/dino/dino-4scale_r50_8xb2-12e_coco.py'}
SIZE = (800, 1344)


class Model(NamedTuple):
    """What a model asks for; counted by ``--measure``.

    Attributes:
        flops: floating-point operations of a training step on one image, two a multiply-add.
        kept: bytes that one image keeps for the backward pass, float32, in a CPU's forms.
        parameters: their number, frozen ones too.
        buckets: bytes of each message of gradients, in the order they are sent.
    """

    flops: float
    kept: int
    parameters: int
    buckets: tuple[int, ...]


class Machine(NamedTuple):
    """ASSUMPTIONS, every one: nothing here was measured.

    Attributes:
        flops: what a GPU sustains in such a model, FLOP/s.
        nvlink: bytes/s of a GPU to the others of its node.
        network: bytes/s of a whole node to the next.
        latency, network_latency: seconds a message needs to the next GPU, to the next node.
        per_node: GPUs in a node.
        batch: images a GPU takes in a step.
        workers: processes that load data for one GPU.
        load: CPU seconds that one worker needs for an image; this one is measured.
    """

    flops: float = 4e13
    nvlink: float = 2e11
    network: float = 2.5e10
    latency: float = 5e-6
    network_latency: float = 2e-5
    per_node: int = 8
    batch: int = 2
    workers: int = 4
    load: float = 0.0


def bucket_bytes(sizes: Sequence[int], first: int = FIRST_BUCKET, limit: int = BUCKET) -> list[int]:
    """Bytes of each bucket of gradients of DistributedDataParallel; a bucket is closed by the
    gradient that fills it.

    Args:
        sizes: bytes of the gradients in the order they come.
        first, limit: of the first bucket and of the others.
    """
    buckets, current = [], 0
    for size in sizes:
        current += size
        if current >= (limit if buckets else first):
            buckets.append(current)
            current = 0
    return [*buckets, current] if current else buckets


def all_reduce_seconds(size: float, gpus: int, machine: Machine) -> float:
    """A ring's time for the sum of one message: 2 (n - 1) / n of it through the slowest link, and
    2 (n - 1) hand-overs. Between nodes a ring through all GPUs crosses each node's link once."""
    if gpus == 1:
        return 0.0
    nodes = math.ceil(gpus / machine.per_node)
    bandwidth = machine.nvlink if nodes == 1 else min(machine.nvlink, machine.network)
    crossings = 2 * (nodes - 1)
    inside = 2 * (gpus - 1) - crossings
    return (2 * (gpus - 1) / gpus * size / bandwidth
            + inside * machine.latency + crossings * machine.network_latency)


def step_seconds(model: Model, gpus: int, machine: Machine) -> dict[str, float]:
    """Seconds of a step's parts, and of the step.

    Messages go while the backward pass, two thirds of the computation, runs; the last one, sent
    when it ends, has nothing to hide behind. Data is loaded meanwhile, and the slower counts.
    """
    compute = machine.batch * model.flops / machine.flops
    messages = [all_reduce_seconds(size, gpus, machine) for size in model.buckets]
    exposed = max(sum(messages) - compute * 2 / 3, messages[-1])
    loading = machine.batch * machine.load / machine.workers
    return {'compute': compute, 'messages': sum(messages), 'exposed': exposed, 'loading': loading,
            'step': max(compute + exposed, loading)}


def training(model: Model, gpus: int, machine: Machine) -> dict[str, float]:
    """Steps, hours, GPU hours and efficiency (against one GPU with the same batch) of 3x."""
    batch = gpus * machine.batch
    steps = EPOCHS * math.ceil(IMAGES / batch)
    seconds = step_seconds(model, gpus, machine)
    hours = steps * seconds['step'] / 3600
    alone = step_seconds(model, 1, machine)['step']
    return {**seconds, 'batch': batch, 'steps': steps, 'hours': hours, 'gpu hours': gpus * hours,
            'efficiency': alone / seconds['step']}


def gpu_bytes(model: Model, batch: int) -> int:
    """Weights, gradients and AdamW's two means in float32, and what the images keep."""
    return 16 * model.parameters + batch * model.kept


def spread_bytes(vit: dict[str, int], trained: str, gpus: int) -> int:
    """A GPU's weights, gradients and AdamW's means of a transformer under FSDP2, with two gathered
    blocks: the one at work and the next. Images and the head are not in it.

    Args:
        vit: parameters of a 'block', in all 'blocks', and of the 'rest'.
        trained: a key of ``SPREAD``.
        gpus: their number.
    """
    parameters = vit['block'] * vit['blocks'] + vit['rest']
    kept, gathered = SPREAD[trained]
    return parameters * kept // gpus + (2 * vit['block'] * gathered if gpus > 1 else 0)


def measure(config: str) -> Model:
    """Counts a training step on one image of 800 x 1344 with 7 boxes."""
    import mmposenc  # noqa: F401
    from mmposenc.functional import linear
    model = _build(config)
    sizes = [p.numel() * p.element_size() for p in model.parameters() if p.requires_grad]
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return x
    data = model.data_preprocessor(_batch(), training=True)
    # The counter does not know oneDNN's product.
    with mock.patch.object(linear, 'onednn_is_faster', lambda: False), counted() as counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            loss = model.parse_losses(model(**data, mode='loss'))[0]
        loss.backward()
    return Model(float(counter.get_total_flops()), sum(kept.values()),
                 sum(p.numel() for p in model.parameters()), tuple(bucket_bytes(sizes[::-1])))


def counted() -> FlopCounterMode:
    """torch's counter of operations, which does not know a CPU's attention by itself."""
    aten = torch.ops.aten
    return FlopCounterMode(display=False, custom_mapping={
        aten._scaled_dot_product_flash_attention_for_cpu:
            lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward:
            lambda grad, q, k, v, *_, **__: sdpa_backward_flop_count(grad, q, k, v)})


def _build(config: str) -> nn.Module:
    from mmengine.registry import MODELS, init_default_scope

    from mmposenc.engine import load_config
    torch.manual_seed(0)
    cfg = load_config(f'mmposenc::{config}')
    init_default_scope(cfg.default_scope)
    cfg.model.backbone.init_cfg = None
    model: nn.Module = MODELS.build(cfg.model)
    model.init_weights()
    return model.train()


def _batch() -> dict:
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData
    meta = dict(img_shape=SIZE, ori_shape=SIZE, pad_shape=SIZE, batch_input_shape=SIZE,
                scale_factor=(1.0, 1.0))
    corners = torch.arange(7.0)[:, None] * torch.tensor([90.0, 60.0])
    sample = DetDataSample(metainfo=meta, gt_instances=InstanceData(
        bboxes=torch.cat([corners, corners + 200], 1), labels=torch.arange(7)))
    return dict(inputs=[torch.randint(0, 256, (3, *SIZE), dtype=torch.uint8)],
                data_samples=[sample])


def loading_seconds(images: int = 60) -> tuple[float, int]:
    """CPU seconds that one worker needs for an image of 480 x 640 in a JPEG file through the
    pipeline of coco_detection.py (to 800 x 1067), and the mean bytes of the files."""
    from mmengine.dataset import Compose
    from mmengine.registry import init_default_scope
    from PIL import Image

    from mmposenc.engine import load_config
    init_default_scope('mmdet')
    pipeline = Compose(load_config(
        f"mmposenc::{CONFIGS['RetinaNet, PVT-tiny']}").train_dataloader.dataset.pipeline)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        items, sizes = [], []
        for i in range(images):
            path = Path(folder, f'{i}.jpg')
            coarse = Image.fromarray(rng.integers(0, 256, (60, 80, 3), dtype=np.uint8))
            noise = rng.normal(0, 12, (480, 640, 3))
            pixels = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC)) + noise
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
            sizes.append(path.stat().st_size)
            items.append(dict(
                img_path=str(path), img_id=i, height=480, width=640, instances=[
                    dict(bbox=[10, 10, 200, 200], bbox_label=0, ignore_flag=0)] * 7))
        pipeline(dict(items[0]))
        start = time.process_time()
        for item in items:
            pipeline(dict(item))
        return (time.process_time() - start) / images, sum(sizes) // images


#: By ``--measure``: torch 2.13, one thread of an AMD EPYC with AVX-512, other work beside it.
INPUTS = {
    'RetinaNet, PVT-tiny': Model(
        flops=1456373108736.0, kept=1378882428, parameters=22964212,
        buckets=(6970320, 28322816, 26715136, 26269952, 3578624)),
    'DETR-R50, iRPE': Model(
        flops=547351196800.0, kept=1154435580, parameters=41590613,
        buckets=(2208768, 27365376, 26334592, 30053076, 30408704, 28049408, 20840448)),
    'DINO-R50': Model(
        flops=1830762276864.0, kept=5027753839, parameters=47702412,
        buckets=(1268736, 27628544, 27750912, 36449072, 35133440, 26214400, 26476544, 8785920))}
#: Bytes a parameter that are kept, and that are gathered, by what is trained. Vectors, which stay
#: float32, are a thousandth.
SPREAD = {'nothing, in bfloat16': (2, 2), 'nothing': (4, 4), 'everything': (16, 4)}
#: DINOv3's ViT-7B/16: built on the meta device and counted.
VIT_7B = dict(block=167_821_312, blocks=40, rest=3_178_496)
#: The slower of two runs (0.0055 the other); the files had 157,378 bytes on average.
LOAD = 0.0069


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--measure', action='store_true')
    parser.add_argument('--gpus', type=int, nargs='+', default=[1, 8, 64, 512])
    for name, default in Machine(load=LOAD)._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    args = parser.parse_args()
    if args.measure:
        seconds, size = loading_seconds()
        print(f'LOAD = {seconds:.4f}  # JPEG files of {size} bytes', flush=True)
        for name, config in CONFIGS.items():
            print(f'{name!r}: {measure(config)},', flush=True)
        return
    machine = Machine(*(getattr(args, name) for name in Machine._fields))
    steps = [['model', 'GPUs', 'images a step', 'steps', 'compute', 'messages', 'not hidden',
              'loading', 'step, ms', 'hours', 'GPU hours', 'efficiency']]
    for name, model in INPUTS.items():
        for gpus in args.gpus:
            row = training(model, gpus, machine)
            steps.append([
                name, str(gpus), f"{row['batch']:,.0f}", f"{row['steps']:,.0f}",
                *(f'{1e3 * row[part]:.1f}' for part in (
                    'compute', 'messages', 'exposed', 'loading', 'step')),
                f"{row['hours']:.2f}", f"{row['gpu hours']:.0f}", f"{row['efficiency']:.2f}"])
    batches = (1, 2, 4, 8)
    memory = [['model', *(f'{batch} images' for batch in batches)]]
    memory += [[name, *(f'{gpu_bytes(model, batch) / 2 ** 30:.1f}' for batch in batches)]
               for name, model in INPUTS.items()]
    spread = [['ViT-7B trained', *(f'{gpus} GPUs' for gpus in args.gpus)]]
    spread += [[trained, *(f'{spread_bytes(VIT_7B, trained, gpus) / 2 ** 30:.1f}'
                           for gpus in args.gpus)] for trained in SPREAD]
    for name, rows in (('steps', steps), ('memory', memory), ('vit-7b', spread)):
        print(f'scale-{name}.csv\n{csv_rows(rows)}')


if __name__ == '__main__':
    main()
