# DEIMv2's adapter instead of the simple pyramid: details of the image itself beside the maps of
# the frozen backbone, at strides 8, 16 and 32. Anchors are as large as there.
#
#     mmposenc prepare pretrained
_base_ = 'retinanet_vit-s14_sfp_1xb4-10e_trees.py'

model = dict(
    backbone=dict(with_image=True, final_norm='every'),
    neck=dict(_delete_=True, type='mmposenc.STA', in_channels=384, out_channels=64, patch_size=14),
    bbox_head=dict(anchor_generator=dict(octave_base_scale=4.375, strides=[8, 16, 32])))
