# A linear head on a pretrained ViT-S/14 whose last four blocks are tuned, on CamVid: to compare
# encodings in these blocks, at images up to 952x1288 (68x92 cells; the table was trained on 37x37):
#
#     mmposenc compare mmposenc::linear-vit-s14-tuned-camvid --sizes 504x672 714x966 952x1288 \
#         --encodings keep none configs/studies/pretrained_blocks.yaml
_base_ = 'linear_vit-s14_1xb4-10e_camvid-252x336.py'
model = dict(backbone=dict(frozen_stages=8))
# Rates of 0.0001 for the blocks, and of 0.001 for new encodings.
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={
    'backbone': dict(lr_mult=0.02), 'rel_pos_encoding': dict(lr_mult=0.2, decay_mult=0.0),
    'pos_encodings': dict(lr_mult=0.2, decay_mult=0.0)}))
