# RetinaNet on Swin-T. The norm of the first stage's map, which RetinaNet does not take, would get
# no gradient: that map is left out.
_base_ = ['retinanet_pvt.py', 'swin-t.py']
model = dict(
    backbone=dict(_base_.swin_t, _delete_=True, out_indices=(1, 2, 3)),
    neck=dict(in_channels=[192, 384, 768], start_level=0))
