# With a PEG of each level behind the first encoder layer, besides sines and cosines.
# Recipe: mmdet's DINO, 12 epochs, 16 images a step.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/dino/dino-4scale_r50-peg_8xb2-12e_coco.py 8
_base_ = 'dino-4scale_r50_8xb2-12e_coco.py'
model = dict(encoder=dict(
    pos_encoding=dict(type='mmposenc.PEG', norm_act=True, bias=False), positions=(0, )))
