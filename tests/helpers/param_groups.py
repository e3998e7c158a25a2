"""What a config's optimizer does with each parameter."""
from mmengine.config import Config
from mmengine.optim import OptimWrapper
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from torch import nn


def build_optimizer(model: nn.Module, cfg: Config) -> OptimWrapper:
    """As the runner builds it."""
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return Runner.build_optim_wrapper(type('_', (), {'model': model})(), cfg.optim_wrapper)


def weight_decays(model: nn.Module, cfg: Config) -> dict[str, float]:
    """Weight decay of every parameter that is trained, by its name."""
    decay = {id(p): group['weight_decay']
             for group in build_optimizer(model, cfg).optimizer.param_groups
             for p in group['params']}
    return {name: decay[id(p)] for name, p in model.named_parameters() if id(p) in decay}


def without_gradient(model, data) -> list[str]:
    """Names of the trained weights that a training step with a finite loss leaves without a
    gradient."""
    losses = model.train()(**model.data_preprocessor(data, training=True), mode='loss')
    loss, _ = model.parse_losses(losses)
    assert loss.isfinite(), losses
    loss.backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
