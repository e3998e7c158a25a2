# Repeated augmentation: a batch holds three versions of each image, spread over the GPUs, and an
# epoch sees a third of the images. The releases of DeiT, iRPE and PVT train so; Swin's does not.
_base_ = 'imagenet.py'
train_dataloader = dict(
    sampler=dict(_delete_=True, type='RepeatAugSampler', shuffle=True, num_repeats=3))
