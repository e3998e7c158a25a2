"""A hook that keeps padding out of a model's predictions during a run."""
from __future__ import annotations

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmposenc.padding import keep_padding_out

from .distributed import unwrapped_model


class KeepPaddingOut(Hook):
    """Makes predictions of an image independent of the other images of its batch, in validation,
    tests and predictions (:func:`mmposenc.padding.keep_padding_out`). Training does not change."""

    priority = 'VERY_HIGH'  # It runs before hooks that copy the model.

    def before_run(self, runner: Runner) -> None:
        """Change the model in place."""
        keep_padding_out(unwrapped_model(runner.model))

    def before_train(self, runner: Runner) -> None:
        """Log that the hook changes nothing in training."""
        runner.logger.info("KeepPaddingOut acts in validation, tests and predictions; the training "
                           "uses the model's own loss, in which padding is not kept out")
