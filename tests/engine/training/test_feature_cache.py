"""Features of a frozen backbone that are kept in a folder."""
import errno
import logging
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict
from safetensors import SafetensorError
from torch import nn

from mmposenc.backbones import DeiT
from mmposenc.engine.training import feature_cache
from mmposenc.engine.training.feature_cache import CachedForward, FeatureCacheHook, FeatureStore
from mmposenc.functional.image_sizes import set_img_shapes

A, B, C = 'a/1', 'a/2', 'b/1'


@pytest.fixture
def store(tmp_path) -> FeatureStore:
    return FeatureStore(tmp_path, 1e-3)


@pytest.fixture
def logged(monkeypatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(feature_cache, 'print_log', lambda text, *_: lines.append(text))
    return lines


def features(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(3, 4, 5, generator=generator).bfloat16() for _ in range(2)]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob('*') if path.is_file())


def test_what_is_written_is_read(tmp_path, store) -> None:
    assert store.read(A) is None
    store.write(A, [each.float() for each in features()])
    for fresh in (store, FeatureStore(tmp_path, 1e-3)):
        assert all(map(torch.equal, fresh.read(A), features())) and len(fresh.read(A)) == 2
        assert fresh.read(B) is None and fresh.read(C) is None
    assert store.counts == {'read': 2, 'written': 1, 'not stored': 0}
    assert len(files(tmp_path)) == 1  # nothing half written lies about


@pytest.mark.parametrize('damage', [
    lambda data: data[:-1], lambda data: data[:20], lambda data: b'', lambda data: data + b'0',
    lambda data: b'PK' + data[2:], lambda data: data.replace(b'BF16', b'BF17')])
def test_a_damaged_file_is_none_and_is_written_anew(tmp_path, store, damage) -> None:
    store.write(A, features())
    path, = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert store.read(A) is None and store.counts['read'] == 0
    store.write(A, features())
    assert all(map(torch.equal, store.read(A), features()))
    assert files(tmp_path) == [path]


def test_the_folder_does_not_grow_beyond_its_limit(tmp_path, logged, monkeypatch) -> None:
    store = FeatureStore(tmp_path, 3e-6)
    for number in range(10):
        store.write(f'a/{number}', features())
    total = sum(path.stat().st_size for path in files(tmp_path))
    assert total <= 3000
    written = store.counts['written']
    assert written >= 2 and store.counts['not stored'] == 10 - written
    assert len(logged) == 1 and 'max_gb=3e-06 is too little for all features' in logged[0]
    # Those of another run, or of other weights, count too; processes share the room.
    full = FeatureStore(tmp_path, total / 10 ** 9)
    assert full.room == 0
    full.write(C, features())
    assert full.counts['not stored'] == 1
    monkeypatch.setattr(feature_cache, 'get_world_size', lambda: 4)
    assert FeatureStore(tmp_path, (total + 1000) / 10 ** 9).room == 250


@pytest.mark.parametrize('error', [OSError(errno.ENOSPC, 'No space left on device'),
                                   SafetensorError('No space left on device (os error 28)')])
def test_a_full_disk_ends_nothing(tmp_path, store, logged, monkeypatch, error) -> None:
    def full(tensors, path):
        Path(path).write_bytes(b'half of it')
        raise error
    monkeypatch.setattr(feature_cache, 'save_file', full)
    cached, x = CachedForward(frozen(), store), batch((14, 20), (24, 9), full=(28, 24))
    assert all(map(torch.equal, cached(x), cached(x)))
    assert store.counts['not stored'] == 4 and files(tmp_path) == []
    assert len(logged) == 1 and 'No space left on device' in logged[0]
    monkeypatch.undo()
    cached(x), cached(x)  # there is room again
    assert store.counts['written'] == store.counts['read'] == 2


def test_hashes_are_of_values_types_shapes_and_names() -> None:
    x, hashed = torch.arange(6.).view(2, 3), feature_cache.hash_tensors
    states = [{'': each} for each in (x, x + 1, x.double(), x.view(3, 2), x.t(), torch.cat([x, x]))]
    states += [{'a': x, 'b': x + 1}, {'a': x + 1, 'b': x}, {'a': x}, {'b': x}]
    assert len({hashed(each) for each in states}) == len(states)
    # Whatever the strides and the order of names.
    assert hashed({'a': x.t(), 'b': x}) == hashed({'b': x.clone(), 'a': x.t().contiguous()})
    assert hashed(states[0]) != hashed(states[0], 'out_indices')


def frozen(**options) -> DeiT:
    torch.manual_seed(0)
    model = DeiT(embed_dims=16, num_layers=2, num_heads=2, patch_size=4, img_size=16,
                 out_indices=(0, 1), final_norm=False, frozen_stages=2, mask_padding=True,
                 pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'), **options)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(0, 0.5)
    return model.train()


def batch(*shapes: tuple[int, int], full: tuple[int, int], junk: float = 9.) -> torch.Tensor:
    """Images in a batch with junk in the padding."""
    torch.manual_seed(1)
    x = torch.full((len(shapes), 3, *full), junk)
    for image, (height, width) in zip(x, shapes, strict=True):
        image[:, :height, :width] = torch.randn(3, height, width)
    return set_img_shapes(x, shapes)


@pytest.mark.parametrize('masked', [True, False])
def test_cached_features_are_those_of_the_backbone(store, masked) -> None:
    """Without masks padding belongs to the image."""
    backbone = frozen()
    backbone.mask_padding = masked
    # No image fills the batch: a divisor of sizes has padded all of it.
    x = batch((14, 20), (24, 9), full=(28, 24))
    expected = backbone(x)
    cached = CachedForward(backbone, store)
    first, second = cached(x), cached(x)
    assert store.counts == {'read': 2, 'written': 2, 'not stored': 0}
    for out, again, plain in zip(first, second, expected, strict=True):
        assert out.shape == plain.shape == (2, 16, 7, 6) and out.dtype == plain.dtype
        assert torch.equal(out, again)
        # bfloat16 has 8 bits; a mistake of padding or position would be of the span.
        assert (out - plain).abs().max() < 0.03 * plain.abs().max()
        assert torch.equal(out == 0, plain == 0) and out[0, :, 4:].any() != masked


def test_an_image_has_its_features_in_any_batch(store) -> None:
    cached, x = CachedForward(frozen(), store), batch((14, 20), (24, 9), full=(24, 20))
    outs = cached(x)
    alone = cached(set_img_shapes(x[:1, :, :14, :20].clone(), [(14, 20)]))
    again = cached(batch((14, 20), (24, 9), full=(24, 20), junk=-3.))
    assert store.counts['written'] == 2 and store.counts['read'] == 3
    for out, one, other in zip(outs, alone, again, strict=True):
        assert torch.equal(out[:1, :, :4, :5], one) and torch.equal(out, other)


def test_other_weights_or_options_have_other_features(store) -> None:
    first = CachedForward(frozen(), store, dict(out_indices=(0, 1), init_cfg=dict(a=1)))
    same = CachedForward(frozen(), store, ConfigDict(out_indices=(0, 1), init_cfg=None))
    assert first.weights == same.weights
    assert first.weights != CachedForward(frozen(), store, dict(out_indices=(0,))).weights
    other = frozen()
    with torch.no_grad():
        other.blocks[1].mlp.fc2.bias[3] += 1e-3
    assert first.weights != CachedForward(other, store, dict(out_indices=(0, 1))).weights


def runner_of(model: nn.Module) -> SimpleNamespace:
    return SimpleNamespace(model=model, cfg={}, logger=logging.getLogger('features'))


def test_only_training_reads_and_the_backbone_comes_back(tmp_path) -> None:
    model = nn.Module()
    model.backbone = frozen()
    hook, runner = FeatureCacheHook(str(tmp_path)), runner_of(model)
    x = batch((16, 16), full=(16, 16))
    plain = model.backbone(x)
    hook.before_train(runner)
    stored = model.backbone(x)
    model.eval()
    assert all(map(torch.equal, model.backbone(x), plain))
    assert not torch.equal(stored[0], plain[0]) and hook.store.counts['written'] == 1
    assert model.backbone.state_dict().keys() == frozen().state_dict().keys()
    hook.after_train(runner)
    assert all(map(torch.equal, model.train().backbone(x), plain))


def test_views_are_few_and_always_the_same() -> None:
    from mmengine.dataset import BaseDataset

    from mmposenc.engine.training.seeding import FewViews
    data = BaseDataset(lazy_init=True, data_prefix={}, serialize_data=False)
    data.load_data_list = lambda: [{'i': i} for i in range(5)]
    data.full_init()
    data.pipeline = lambda info: (info['i'], random.random(), np.random.rand(),
                                  torch.rand(1).item())

    def drawn(i: int, seeds: range, **options: int) -> set:
        views = FewViews(data, views=3, **options)
        return {views[i] for seed in seeds if np.random.seed(seed) is None}
    for i in range(5):
        known = drawn(i, range(40))
        assert len(known) == 3 and {each[0] for each in known} == {i}
        assert drawn(i, range(40, 80)) == known  # whatever was drawn before
        assert not drawn(i, range(40), seed=1) & known
    with pytest.raises(ValueError, match='views=0 must be at least 1'):
        FewViews(data, views=0)


def test_a_config_with_the_hook_gets_few_views() -> None:
    def config(*hooks):
        return Config(dict(
            train_dataloader=dict(dataset=dict(type='RepeatDataset', times=3, dataset=dict(
                type='Inner'))), custom_hooks=[dict(type='EMAHook'), *hooks]))
    cfg = config()
    feature_cache.repeat_with_few_views(cfg)
    assert cfg.to_dict() == config().to_dict()
    for views in (4, 2):
        hook = dict(type='mmposenc.FeatureCacheHook', **({} if views == 4 else {'views': 2}))
        cfg = config(hook)
        feature_cache.repeat_with_few_views(cfg)
        feature_cache.repeat_with_few_views(cfg)  # once is enough
        assert cfg.train_dataloader.dataset == dict(
            type='RepeatDataset', times=3,
            dataset=dict(type='mmposenc.FewViews', views=views, dataset=dict(type='Inner')))


def test_a_model_without_a_backbone_or_with_one_that_trains(tmp_path) -> None:
    with pytest.raises(ValueError, match='Linear has no backbone'):
        FeatureCacheHook(str(tmp_path)).before_train(runner_of(nn.Linear(1, 1)))
    model = nn.Module()
    model.backbone = nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r'trains 2 of its parameters \(weight, bias\)'):
        FeatureCacheHook(str(tmp_path)).before_train(runner_of(model))
    with pytest.raises(ValueError, match='max_gb=0 must be positive'):
        FeatureCacheHook(str(tmp_path), max_gb=0)
    (tmp_path / 'file').write_text('')
    (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
    for name in ('file', 'link', 'file/deeper'):
        with pytest.raises(ValueError, match=f'folder of kept features .*{name}: .* is no folder'):
            FeatureStore(tmp_path / name, 1)
    FeatureCacheHook(str(tmp_path / 'new'))
    assert not (tmp_path / 'new').exists()
