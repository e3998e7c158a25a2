# Instead of default_runtime.py: weights, gradients and optimizer spread over all processes.
_base_ = 'default_runtime.py'
runner_type = 'mmposenc.FlexibleRunner'
strategy = dict(type='mmposenc.FSDP2Strategy')
