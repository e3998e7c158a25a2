# 300 epochs of fine-tuning, 256 images a step. iRPE's supplement gives the epochs and nothing else;
# the learning rate is a tenth of that of training.
_base_ = 'imagenet_300e.py'
optim_wrapper = dict(optimizer=dict(lr=2.5e-5))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=5,
        convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=2.5e-7, by_epoch=True, begin=5, end=300, T_max=295)]
auto_scale_lr = dict(base_batch_size=256)
