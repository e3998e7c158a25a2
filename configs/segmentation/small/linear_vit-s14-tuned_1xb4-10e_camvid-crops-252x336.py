# A linear head on a pretrained ViT-S/14 whose last four blocks are tuned, on parts of CamVid's
# pictures. Whole pictures, on which it is tested, show four times as much; with
# model.test_cfg.mode=slide they are cut into four windows of the training size.
#
#     mmposenc compare mmposenc::linear-vit-s14-tuned-camvid-crops --sizes 1 1.5 2 \
#         --encodings keep configs/studies/pretrained_blocks.yaml
_base_ = 'linear_vit-s14_1xb4-10e_camvid-252x336.py'
model = dict(
    backbone=dict(frozen_stages=8), test_cfg=dict(crop_size=(252, 336), stride=(252, 336)))
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2]['scale'] = test_pipeline[1]['scale'] = (672, 504)
train_pipeline.insert(3, dict(type='RandomCrop', crop_size=(252, 336)))
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
# Rates of 0.0001 for the blocks, and of 0.001 for new encodings.
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={
    'backbone': dict(lr_mult=0.02), 'rel_pos_encoding': dict(lr_mult=0.2, decay_mult=0.0),
    'pos_encodings': dict(lr_mult=0.2, decay_mult=0.0)}))
