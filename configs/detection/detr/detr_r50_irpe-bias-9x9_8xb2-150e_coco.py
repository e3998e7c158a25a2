# With iRPE: bias, product, 9x9 buckets, a table for each head.
# Recipe: DETR's, 150 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50_irpe-bias-9x9_8xb2-150e_coco.py 8
_base_ = 'detr_r50_8xb2-150e_coco.py'
model = dict(encoder=dict(layer_cfg=dict(self_attn_cfg=dict(
    rel_pos_encoding=dict(
        type='mmposenc.IRPE', method='product', mode='bias', rpe_on='k', ratio=2.0,
        shared_heads=False)))))
