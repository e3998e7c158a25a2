# The same with a PEG behind the first encoder layer instead of sines and cosines.
_base_ = 'deformable-detr_r18-w16_trees.py'
model = dict(encoder=dict(
    encoder_pos=None,
    pos_encoding=dict(type='mmposenc.PEG', norm_act=True, bias=False), positions=(0, )))
