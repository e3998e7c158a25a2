# DeiT-Ti with a learned table and a relative encoding: Swin's table of biases for the 14x14 grid,
# one for all blocks, which with the learned table has the 40,011 parameters that CPVT counts
# (197 x 192 + 27 x 27 x 3). Nothing is added to pairs with the class token. The table of biases is
# of one size of image: img_size=384 and init_cfg=dict(type='Pretrained', ...) resize it to another.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-ti-learned-rpe2d_in1k.py 8
_base_ = 'deit-ti_in1k.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.RelativePositionBias', prefix_bias=False),
    rel_pos_sharing='all'))
