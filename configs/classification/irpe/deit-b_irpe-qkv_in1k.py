# DeiT-B with iRPE on queries, keys and values: Product, contextual, shared, 50 buckets.
# iRPE (ICCV 2021), release: top-1 82.8; 86,682,856 parameters, 18,137 M MACs. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-b_irpe-qkv_in1k.py 8
_base_ = '../deit/deit-b_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='qkv')))
