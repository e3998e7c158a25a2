"""docs/trackers.md: its commands are understood, its config is; what arrives, test_trackers.py of
engine/ reads back."""
from __future__ import annotations

from mmengine.config import Config
from mmengine.registry import HOOKS, VISBACKENDS
from running import commands, run_page

from mmposenc.commands.train import parse_args
from mmposenc.engine.config.options import accepted_arguments
from mmposenc.engine.training.trackers import TRACKERS


def test_the_page(tmp_path) -> None:
    named = [parse_args(words[2:]).trackers for words in commands('docs/trackers.md')
             if words[1:2] == ['train']]
    assert {each for names in named for each in names} == set(TRACKERS)
    left = run_page('docs/trackers.md', tmp_path)
    cfg = Config({key: left[key] for key in ('visualizer', 'custom_hooks', 'default_hooks')})
    for node, registry in [*((each, VISBACKENDS) for each in cfg.visualizer.vis_backends),
                           (cfg.custom_hooks[0], HOOKS), (cfg.default_hooks.logger, HOOKS)]:
        accepted = accepted_arguments(registry.get(node.type))
        assert set(node) - {'type'} <= set(accepted), node
