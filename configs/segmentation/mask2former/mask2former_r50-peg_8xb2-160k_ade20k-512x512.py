# With a PEG of each level behind the first layer of the pixel decoder.
# Recipe: mmseg's Mask2Former, 160k steps of 16 images, with this project's pipeline.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/mask2former/mask2former_r50-peg_8xb2-160k_ade20k-512x512.py 8
_base_ = 'mask2former_r50_8xb2-160k_ade20k-512x512.py'
model = dict(decode_head=dict(pixel_decoder=dict(encoder=dict(
    pos_encoding=dict(type='mmposenc.PEG', norm_act=True, bias=False), positions=(0, )))))
