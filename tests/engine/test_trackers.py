"""TensorBoard, Weights & Biases and MLflow by --tracker: what arrives, read from their files."""
from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image
from tinydata import RETINANET, tiny_detector

from mmposenc.commands.train import main as run_train
from mmposenc.engine.training.trackers import add_trackers
from mmposenc.lab.figures.tracker_hook import TrackerHook

pytest.importorskip('tensorboard')
pytest.importorskip('wandb')
pytest.importorskip('mlflow')

#: A checkpoint is written before its epoch is validated, so that a resume does that once more.
VALIDATED = [2, 2, 4]


class Proxy:
    """Counts who would connect to anything outside: clients of every language ask their proxy."""

    def __init__(self) -> None:
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.url = f'http://127.0.0.1:{self.socket.getsockname()[1]}'
        self.asked: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            connection.settimeout(5)
            with contextlib.suppress(OSError):
                self.asked.append(connection.recv(200).decode(errors='replace').split('\n')[0])
            connection.close()


@pytest.fixture(scope='module')
def run(tmp_path_factory) -> dict[str, object]:
    """A tiny detector, trained one epoch and resumed for another, with all three; and without."""
    root = tmp_path_factory.mktemp('trackers')
    config = tiny_detector(root)
    proxy = Proxy()
    with pytest.MonkeyPatch.context() as patch:
        for name in ('HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY'):
            patch.setenv(name, proxy.url)
            patch.setenv(name.lower(), proxy.url)
        for name in ('NO_PROXY', 'no_proxy', 'WANDB_MODE', 'MLFLOW_TRACKING_URI'):
            patch.delenv(name, raising=False)
        trackers = ['--tracker', 'tensorboard', '--tracker', 'wandb', '--tracker', 'mlflow']

        def train(name: str, folder: str, *words: str) -> None:
            run_train([str(config), '--work-dir', str(root / folder), *words, '--cfg-options',
                       f'experiment_name={name}', f'visualizer.name={name}',
                       'model.backbone.rel_pos_encoding.type=mmposenc.IRPE',
                       'model.test_cfg.score_thr=0.0',
                       f'train_cfg.max_epochs={1 if name == "tracked_1" else 2}'])
        train('tracked_1', 'work', *trackers)
        train('tracked_2', 'work', *trackers, '--resume')
        train('plain', 'plain')
    proxy.socket.close()
    return dict(root=root, work=root / 'work', asked=proxy.asked)


@pytest.mark.slow
def test_training_is_the_same(run) -> None:
    tracked, plain = (torch.load(run['root'] / folder / 'epoch_2.pth', weights_only=False)
                      for folder in ('work', 'plain'))
    for name, value in plain['state_dict'].items():
        assert torch.equal(value, tracked['state_dict'][name]), name


def losses(run) -> dict[int, float]:
    """By iteration, as mmengine's own files have them."""
    found = {}
    for path in sorted(run['work'].glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if 'loss' in row:
                found[row['step']] = row['loss']
    assert list(found) == [1, 2, 3, 4]
    return found


@pytest.mark.slow
def test_tensorboard(run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run['work'] / 'tensorboard' / 'run_1'), size_guidance=dict(
        scalars=0, images=0, tensors=0))
    events.Reload()
    assert not (run['work'] / 'tensorboard' / 'run_2').exists()
    assert {each.step: each.value for each in events.Scalars('loss')} == pytest.approx(losses(run))
    assert [each.step for each in events.Scalars('coco/bbox_mAP')] == VALIDATED
    text = events.Tensors('config/text_summary')
    assert b'retinanet' in text[0].tensor_proto.string_val[0].lower()
    tags = events.Tags()['images']
    assert [tag for tag in tags if tag.startswith('predictions/')] == [
        f'predictions/shape_{i}' for i in range(4)]
    shown = [tag for tag in tags if tag.startswith('encodings/')]
    assert sum('attention' in tag for tag in shown) == sum('logits' in tag for tag in shown) == 4
    for tag in ('predictions/shape_1', shown[0]):
        assert [each.step for each in events.Images(tag)] == VALIDATED
    drawn = events.Images('predictions/shape_1')[0]
    assert (drawn.width, drawn.height) == (128, 64)  # labels beside predictions


def log_records(data: bytes) -> Iterator[bytes]:
    """Of a .wandb file: LevelDB's log format behind seven bytes, in blocks of 32 KiB."""
    assert data.startswith(b':W&B')
    at, parts = 7, b''
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack('<HB', data[at + 4:at + 7])
        if not kind:
            return
        parts += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last piece
            yield parts
            parts = b''


@pytest.mark.slow
def test_wandb(run) -> None:
    from wandb.proto import wandb_internal_pb2 as pb

    folder = run['work'] / 'wandb' / 'run_1'
    history, config, ids = [], {}, set()
    for path in sorted(folder.glob('wandb/offline-run-*/run-*.wandb')):
        for data in log_records(path.read_bytes()):
            record = pb.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof('record_type')
            if kind == 'run':
                ids.add(record.run.run_id)
            if kind in ('run', 'config'):
                updates = record.run.config if kind == 'run' else record.config
                config.update({each.key or each.nested_key[0]: json.loads(each.value_json)
                               for each in updates.update})
            if kind == 'history':
                history.append({each.key or '.'.join(each.nested_key): json.loads(each.value_json)
                                for each in record.history.item})
    assert ids == {(folder / 'id').read_text()} and 'optim_wrapper' in config
    found = {row['iteration']: row['loss'] for row in history if 'loss' in row}
    assert found == pytest.approx(losses(run))
    assert [row['iteration'] for row in history if 'coco/bbox_mAP' in row] == VALIDATED
    assert [row['iteration'] for row in history if 'predictions/shape_0.path' in row] == VALIDATED
    assert any(name.startswith('encodings/logits') for row in history for name in row)
    pictures = list(folder.glob('wandb/offline-run-*/files/media/images/predictions/*.png'))
    assert len(pictures) == 4 * len(VALIDATED)
    # No tracker connected to anything; other threads of this process may.
    assert not [line for line in run['asked']
                if any(name in line for name in ('wandb', 'sentry', 'mlflow'))]


@pytest.mark.slow
def test_mlflow(run) -> None:
    from mlflow.tracking import MlflowClient

    folder = run['work'] / 'mlflow'
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
        client = MlflowClient((folder / 'mlruns').as_uri())
        [found] = client.search_runs(['0'])
        assert found.info.run_id == (folder / 'run_1' / 'id').read_text()
        assert found.info.status == 'FINISHED' and found.info.run_name == 'work/run_1'
        history = client.get_metric_history(found.info.run_id, 'loss')
        assert {each.step: each.value for each in history} == pytest.approx(losses(run))
        assert [each.step for each in client.get_metric_history(
            found.info.run_id, 'coco/bbox_mAP')] == VALIDATED
        params = found.data.params
        assert params['model.backbone.type'] == 'mmposenc.PVT'
        assert params['optim_wrapper.optimizer.lr'] == str(
            Config.fromfile(RETINANET).optim_wrapper.optimizer.lr)
        artifacts = Path(found.info.artifact_uri.removeprefix('file://'))
        assert 'RetinaNet' in (artifacts / 'config.py').read_text()
        for step in (2, 4):
            drawn = np.asarray(Image.open(
                artifacts / 'predictions' / 'shape_1' / f'{step:07d}.png'))
            assert drawn.shape == (64, 128, 3)
        assert list(artifacts.glob('encodings/logits_*/0000004.png'))


def test_what_can_not_be() -> None:
    cfg = Config(dict(default_scope='mmdet', work_dir='w'))
    with pytest.raises(ValueError, match="tracker='comet' must be one of tensorboard, wandb"):
        add_trackers(cfg, ['comet'])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('mmposenc.engine.training.trackers.find_spec', lambda name: None)
        with pytest.raises(ValueError, match="'wandb' needs a package .*: pip install wandb"):
            add_trackers(cfg, ['wandb'])
    with pytest.raises(ValueError, match='images=-1 must be at least 0'):
        TrackerHook(images=-1)


def test_in_a_config_and_by_the_option_twice() -> None:
    cfg = Config(dict(default_scope='mmseg', work_dir='w', custom_hooks=[
        dict(type='mmposenc.TrackerHook', images=2)], default_hooks=dict(
            logger=dict(type='LoggerHook', log_metric_by_epoch=True))))
    add_trackers(cfg, ['tensorboard', 'tensorboard'])
    assert [each.type for each in cfg.visualizer.vis_backends] == [
        'LocalVisBackend', 'mmposenc.TensorboardVisBackend']
    assert cfg.visualizer.type == 'SegLocalVisualizer'
    assert len(cfg.custom_hooks) == 1 and cfg.default_hooks.logger.log_metric_by_epoch


@pytest.mark.slow
def test_mlflow_closed_resumed_and_elsewhere(tmp_path, monkeypatch) -> None:
    from mlflow.tracking import MlflowClient

    from mmposenc.engine.training.trackers import MLflowVisBackend

    for name in ('MLFLOW_TRACKING_URI', 'MLFLOW_EXPERIMENT_NAME', 'MLFLOW_EXPERIMENT_ID'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
    monkeypatch.setenv('MLFLOW_DISABLE_TELEMETRY', 'true')

    def write(resume: bool) -> None:
        backend = MLflowVisBackend(str(tmp_path / 'w#1'))  # no URI without quoting
        backend.add_config(Config(dict(resume=resume, model=dict(
            stages=[None, dict(type='IRPE')], resume=resume))))
        for step in (1, 2):
            backend.add_scalar('loss', 0.5, step)
            backend.close()  # what is written later opens it again

    def runs(folder) -> list:
        return MlflowClient(folder.as_uri()).search_runs(['0'])

    write(False)
    write(True)  # model.resume has changed
    [found] = runs(tmp_path / 'w#1' / 'mlruns')
    assert found.info.status == 'FINISHED'
    assert found.data.params == {'model.stages.0': 'None', 'model.stages.1.type': 'IRPE',
                                 'model.resume': 'False'}
    monkeypatch.setenv('MLFLOW_TRACKING_URI', (tmp_path / 'server').as_uri())
    write(True)  # the noted run is not there
    assert len(runs(tmp_path / 'server')) == len(runs(tmp_path / 'w#1' / 'mlruns')) == 1
