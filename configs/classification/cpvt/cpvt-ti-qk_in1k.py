# CPVT-Ti whose PEG encodes only what the second block computes queries and keys from.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-qk_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(apply_to='qk')))
