# CPVT-Ti with a PEG of 27x27 before block 0: it sees the whole image there.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-pos-1-k27_in1k.py 8
_base_ = 'cpvt-ti-pos-1_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(kernel_size=27)))
