"""mmengine's runner, strict about what is loaded and careful with what is saved."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from mmengine.dist import master_only
from mmengine.model.test_time_aug import BaseTTAModel
from mmengine.runner import Runner as _Runner

from mmposenc import mmengine_loading  # noqa: F401  (no checkpoint runs code)

from ..checkpoint.encoding_names import BUT_ENCODINGS, is_encoding
from ..checkpoint.integrity import put_in_place, seal
from ..checkpoint.mismatch import mismatch
from .checkpoints import latest_checkpoint, not_finite
from .loops import EpochBasedTrainLoop, IterBasedTrainLoop
from .processes import plain_model


class CheckpointRunner(_Runner):
    """What :class:`~mmposenc.engine.runner.Runner` says of checkpoints."""

    #: Iterations of the newest checkpoint.
    _saved_iter = 0

    def load_or_resume(self) -> None:
        if not self._has_loaded and self._resume and self._load_from is None:
            self._load_from = latest_checkpoint(self.work_dir)
            if self._load_from is None:
                self.logger.warning(f'--resume auto: no checkpoint in {self.work_dir}, '
                                    'training starts from the beginning')
                self._resume = False
        super().load_or_resume()

    def load_checkpoint(self, filename: str, *args: Any, **kwargs: Any) -> dict:
        self._loading = filename
        checkpoint: dict = super().load_checkpoint(filename, *args, **kwargs)
        if isinstance(checkpoint.get('meta'), dict):
            checkpoint['meta'].pop('config', None)  # a resume would run it
        self._loaded = checkpoint
        return checkpoint

    def resume(self, filename: str, *args: Any, **kwargs: Any) -> None:
        super().resume(filename, *args, **kwargs)
        checkpoint, self._loaded = self._loaded, {}
        if isinstance(self._train_loop, (EpochBasedTrainLoop, IterBasedTrainLoop)):
            self._train_loop.continue_at(checkpoint['meta'])
        self._saved_iter = self.iter
        for name, parameter in plain_model(self.model).named_parameters():
            if name in checkpoint.get('gradients', {}):
                parameter.grad = checkpoint['gradients'][name].to(parameter)

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        if fn_name == 'after_load_checkpoint' and 'state_dict' not in kwargs['checkpoint']:
            # Of weights alone, as .safetensors holds them: EMAHook asks for this name.
            kwargs['checkpoint'] = {'state_dict': kwargs['checkpoint']}
        super().call_hook(fn_name, **kwargs)
        if fn_name == 'after_load_checkpoint':  # the last moment before the weights go in
            self._check_match(kwargs['checkpoint'])
        elif fn_name == 'before_save_checkpoint' and 'optimizer' in kwargs['checkpoint']:
            self._add_gradients(kwargs['checkpoint'])

    def _add_gradients(self, checkpoint: dict) -> None:
        """Of iterations whose gradients are accumulated and not applied yet."""
        wrapper = self.optim_wrapper
        if getattr(wrapper, '_inner_count', 0) % getattr(wrapper, '_accumulative_counts', 1):
            checkpoint['gradients'] = {
                name: parameter.grad.cpu() for name, parameter
                in plain_model(self.model).named_parameters() if parameter.grad is not None}

    def _check_match(self, checkpoint: dict) -> None:
        model = plain_model(self.model)
        if isinstance(model, BaseTTAModel):
            model = model.module
        state = {name.removeprefix('module.'): value
                 for name, value in checkpoint['state_dict'].items()}
        own, strict = model.state_dict(), self.cfg.get('load_strict', True)
        report = mismatch(own, state)
        if not report:
            return
        if strict == BUT_ENCODINGS:
            others = mismatch(*({name: value for name, value in each.items()
                                 if not is_encoding(name)} for each in (own, state)))
            strict, report = bool(others), others or report
        wrong = f'the checkpoint {self._loading} does not fit the model'
        if strict:  # what to do comes first: of many lines few are shown
            raise ValueError(f'{wrong}; use the config it was trained with, or pass '
                             '--allow-mismatch (load_strict=False in the config) to load only '
                             f'what fits\n{report}')
        self.logger.warning(f'{wrong}\n{report}')

    def may_save(self) -> bool:
        """Whether the weights are finite: no others may take a good checkpoint's place."""
        models = [plain_model(self.model)]
        models += [hook.ema_model for hook in self.hooks if hasattr(hook, 'ema_model')]
        for model in models:
            if name := not_finite(model.state_dict(), dict(model.named_parameters())):
                self.logger.error(f'no checkpoint is saved: {name} is not finite (iteration '
                                  f'{self.iter + 1})')
                return False
        return True

    @master_only
    def save_checkpoint(self, out_dir: str, filename: str, *args: Any, meta: dict | None = None,
                        by_epoch: bool = True, **kwargs: Any) -> None:
        meta, loop = dict(meta or {}), self._train_loop
        meta.setdefault('epoch', self.epoch + by_epoch)
        meta.setdefault('iter', self.iter + (not by_epoch))
        if isinstance(loop, (EpochBasedTrainLoop, IterBasedTrainLoop)):
            meta['data'] = loop.place(meta['epoch'], meta['iter'])
            meta['validated'] = loop.is_validated(meta['epoch'], meta['iter'])
        if '://' in str(out_dir):
            super().save_checkpoint(out_dir, filename, *args, meta=meta, by_epoch=by_epoch,
                                    **kwargs)
            return
        path, partial = Path(out_dir, filename), Path(out_dir, f'{filename}.partial')
        try:
            super().save_checkpoint(out_dir, partial.name, *args, meta=meta, by_epoch=by_epoch,
                                    **kwargs)
            seal(partial)
            put_in_place(partial, path)
        except OSError as error:
            raise OSError(f'the checkpoint {path} cannot be written: {error.strerror or error}; '
                          'those before it are whole, and --resume continues from them') from error
        finally:
            partial.unlink(missing_ok=True)
        self._saved_iter = meta['iter']
