# Deformable DETR on one level of stride 32, with a PEG behind the first
# encoder layer instead of sines and cosines.
# Recipe: Deformable DETR's, 50 epochs, 32 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/deformable_detr/deformable-detr_r50-ss-none-peg_16xb2-50e_coco.py 16
_base_ = 'deformable-detr_r50-ss_16xb2-50e_coco.py'
model = dict(encoder=dict(
    encoder_pos=None,
    pos_encoding=dict(type='mmposenc.PEG', norm_act=True, bias=False), positions=(0, )))
