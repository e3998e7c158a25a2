# iRPE on keys alone, without sines and cosines in the encoder.
# Recipe: DETR's, 150 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50-none_irpe-ctx-9x9_8xb2-150e_coco.py 8
_base_ = 'detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py'
model = dict(encoder=dict(encoder_pos=None))
