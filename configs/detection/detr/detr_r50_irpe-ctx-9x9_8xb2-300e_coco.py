# With iRPE on keys: contextual, product, 9x9 buckets.
# Recipe: DETR's, 300 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50_irpe-ctx-9x9_8xb2-300e_coco.py 8
_base_ = 'detr_r50_8xb2-300e_coco.py'
model = dict(encoder=dict(layer_cfg=dict(self_attn_cfg=dict(
    rel_pos_encoding=dict(
        type='mmposenc.IRPE', method='product', rpe_on='k', ratio=2.0)))))
