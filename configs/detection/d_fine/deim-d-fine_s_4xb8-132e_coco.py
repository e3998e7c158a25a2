# DEIM (CVPR 2025) on D-FINE-S: the matchability-aware loss, and more objects in an image: mosaics
# of four and mixtures of two images in epochs 4 to 63.
# Recipe: DEIM's, 132 epochs, 32 images a step; a flat rate until epoch 64, then a cosine to half.
# Reference: metafile.yml; not trained here. Mixed images come from a cache, so a resumed training
# does not see the same ones.
#
#     bash tools/dist_train.sh configs/detection/d_fine/deim-d-fine_s_4xb8-132e_coco.py 4
_base_ = 'd-fine_s_4xb8-132e_coco.py'
model = dict(
    decoder=dict(
        mlp_act_cfg=dict(type='SiLU'),
        layer_cfg=dict(ffn_cfg=dict(act_cfg=dict(type='SiLU')))),
    bbox_head=dict(loss_cls=dict(
        _delete_=True, type='mmposenc.MatchabilityAwareLoss', gamma=1.5)))

train_dataloader = dict(dataset=dict(pipeline=_base_.plain_pipeline))
custom_hooks = [_base_.custom_hooks[0], *_base_.dense_hooks, _base_.custom_hooks[1]]

optim_wrapper = dict(optimizer=dict(lr=0.0004))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.0005, by_epoch=False, begin=0, end=2000),
    dict(
        type='CosineAnnealingLR', begin=64, end=120, T_max=56, eta_min_ratio=0.5, by_epoch=True,
        convert_to_iter_based=True),
    dict(type='ConstantLR', factor=1.0, begin=120, end=132)]
