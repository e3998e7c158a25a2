# CPVT-B: DeiT-B with one PEG, after block 0, instead of the table.
# LAMB instead of AdamW, under which it did not always train (CPVT, App. B.2 and Table 10); the
# paper gives no learning rate of it, so DeiT's stays.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-b_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    arch='base',
    pos_encoding=dict(type='mmposenc.PEG', bias=False)), head=dict(in_channels=768))
optim_wrapper = dict(optimizer=dict(type='Lamb'))
