# CPVT-Ti(0-5) with a distillation token and hard distillation from RegNetY-160.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-distilled_8xb128_in1k.py 8
_base_ = '../deit/deit-ti-distilled_8xb128_in1k.py'
model = dict(backbone=dict(
    pos_encoding=dict(type='mmposenc.PEG', bias=False), positions=(0, 1, 2, 3, 4)))
