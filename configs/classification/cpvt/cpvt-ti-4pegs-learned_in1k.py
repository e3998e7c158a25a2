# CPVT-Ti with four PEGs, one behind the other, after block 0, that keeps the learned table of DeiT.
# Whether the four are depthwise or separable is not said.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-4pegs-learned_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
peg = dict(type='mmposenc.PEG', bias=False)
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'), peg, peg, peg, peg]))
