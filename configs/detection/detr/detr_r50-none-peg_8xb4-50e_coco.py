# A PEG behind the first encoder layer instead of sines and cosines.
# Recipe: CPVT's first version: 50 epochs, 32 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50-none-peg_8xb4-50e_coco.py 8
_base_ = 'detr_r50-none_8xb4-50e_coco.py'
model = dict(encoder=dict(
    pos_encoding=dict(type='mmposenc.PEG', norm_act=True, bias=False), positions=(0, )))
