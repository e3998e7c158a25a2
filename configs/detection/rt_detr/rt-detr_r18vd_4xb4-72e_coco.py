# RT-DETR on ResNet-18-vd, three layers in the decoder.
# Recipe: the release's, 72 epochs, 16 images a step; no norm is frozen.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/rt_detr/rt-detr_r18vd_4xb4-72e_coco.py 4
_base_ = 'rt-detr_r50vd_4xb4-72e_coco.py'
model = dict(
    backbone=dict(
        depth=18, frozen_stages=-1, norm_cfg=dict(requires_grad=True), norm_eval=False,
        init_cfg=dict(
            checkpoint='https://github.com/lyuwenyu/storage/releases/download/v0.1/'
            'ResNet18_vd_pretrained_from_paddle.pth')),
    neck=dict(in_channels=[128, 256, 512], expansion=0.5),
    decoder=dict(num_layers=3))
