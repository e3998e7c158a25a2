# The same without an encoding in the encoder.
_base_ = 'deformable-detr_r18-w16_1xb4-50e_bccd.py'
model = dict(encoder=dict(encoder_pos=None))
