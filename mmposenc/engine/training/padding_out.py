"""Keeping padding out of a model for the length of a run."""
from __future__ import annotations

from typing import Any

from mmengine.hooks import Hook

from mmposenc.padding import keep_padding_out
from mmposenc.padding.losses import why_not

from .processes import plain_model


class KeepPaddingOut(Hook):
    """Makes predictions of an image independent of the other images of its batch, and losses those
    of a batch without padding (:func:`mmposenc.padding.keep_padding_out`).

    Args:
        one_size: all images of a training batch have one size, as crops have. Then every model
            trains; a batch of several sizes is an error if its loss has no form for them.

    Raises:
        ValueError: before a run trains, for a model with a layer that reads padding, or whose loss
            has no form for several sizes, or whose whole backbone or neck is to be computed again.
    """

    priority = 'VERY_HIGH'  # before hooks that copy the model

    def __init__(self, one_size: bool = False) -> None:
        self.one_size = one_size

    def before_run(self, runner: Any) -> None:
        """Change the model in place."""
        keep_padding_out(plain_model(runner.model))

    def before_train(self, runner: Any) -> None:
        """Refuse what cannot be trained so."""
        again = runner.cfg.get('activation_checkpointing') or ()
        for name in {again} if isinstance(again, str) else set(again):
            if name in ('backbone', 'neck'):
                raise ValueError(f'activation_checkpointing={again!r}: of a whole {name} mmengine '
                                 f'computes no gradients; name its stages, as {name}.layer2')
        if self.one_size:
            return
        model = plain_model(runner.model.train())
        if (reason := why_not(model)) is not None:
            raise ValueError(f'KeepPaddingOut(one_size=False): {reason}, with one_size=True')
        model.refuse_training()
