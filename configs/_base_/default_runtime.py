# What every task shares: the log, checkpoints, seeding. The fixed seed makes runs that differ in
# their encoding comparable; change it with --cfg-options randomness.seed=1.
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=1, max_keep_ckpts=3),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    not_finite=dict(type='mmposenc.NotFiniteHook'))  # stops before NaN gets into the weights

env_cfg = dict(
    cudnn_benchmark=False,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'))  # without a GPU, gloo takes its place

randomness = dict(seed=0)
log_processor = dict(type='LogProcessor', window_size=50, by_epoch=True)
log_level = 'INFO'
load_from = None
load_strict = True  # a checkpoint that does not fit the model is an error
resume = False
