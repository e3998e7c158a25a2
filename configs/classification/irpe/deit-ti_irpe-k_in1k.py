# DeiT-Ti with iRPE on keys: Product, contextual, shared, 50 buckets.
# iRPE (ICCV 2021), Table 5: top-1 73.7; 5,755,816 parameters, 1,284 M MACs. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-ti_irpe-k_in1k.py 8
_base_ = '../deit/deit-ti_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE')))
