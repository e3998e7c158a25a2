"""Keeping padding out of a model for the length of a run."""
from __future__ import annotations

from typing import Any

from mmengine.hooks import Hook

from ..padding import keep_padding_out
from .processes import plain_model


class KeepPaddingOut(Hook):
    """Makes predictions and losses of each image those of the image alone
    (:func:`mmposenc.padding.keep_padding_out`), whichever images share its batch.

    Raises:
        ValueError: when a run begins, for a model with a layer that may read padding.
    """

    priority = 'VERY_HIGH'  # before hooks that copy the model

    def before_run(self, runner: Any) -> None:
        """Change the model in place."""
        keep_padding_out(plain_model(runner.model))
