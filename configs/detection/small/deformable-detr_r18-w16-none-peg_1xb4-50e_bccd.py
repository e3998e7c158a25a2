# The same with a PEG behind the first encoder layer instead of sines and cosines.
# AP 0.363, AP50 0.659 with seed 0 (docs/results_detr.md).
_base_ = 'deformable-detr_r18-w16-none_1xb4-50e_bccd.py'
model = dict(encoder=dict(
    pos_encoding=dict(type='mmposenc.PEG', norm_act=True, bias=False), positions=(0, )))
