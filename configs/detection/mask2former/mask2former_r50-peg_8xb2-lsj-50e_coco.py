# With a PEG of each level behind the first layer of the pixel decoder.
# Recipe: mmdet's Mask2Former, large-scale jitter, 368,750 steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/mask2former/mask2former_r50-peg_8xb2-lsj-50e_coco.py 8
_base_ = 'mask2former_r50_8xb2-lsj-50e_coco.py'
model = dict(panoptic_head=dict(pixel_decoder=dict(encoder=dict(
    pos_encoding=dict(type='mmposenc.PEG', norm_act=True, bias=False), positions=(0, )))))
