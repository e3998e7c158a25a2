# No encoding in the encoder ('w/o PE'); the decoder's keys keep theirs.
# Recipe: CPVT's first version: 50 epochs, 32 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50-none_8xb4-50e_coco.py 8
_base_ = 'detr_r50_8xb4-50e_coco.py'
model = dict(encoder=dict(encoder_pos=None))
