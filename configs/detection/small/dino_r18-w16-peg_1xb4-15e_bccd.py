# The same with a PEG behind the first encoder layer besides sines and cosines.
_base_ = 'dino_r18-w16_1xb4-15e_bccd.py'
model = dict(encoder=dict(
    pos_encoding=dict(type='mmposenc.PEG', norm_act=True, bias=False), positions=(0, )))
