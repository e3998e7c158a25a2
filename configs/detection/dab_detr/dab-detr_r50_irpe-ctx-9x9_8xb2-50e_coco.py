# With iRPE on keys in the encoder: contextual, product, 9x9 buckets.
# Recipe: mmdet's DAB-DETR, 50 epochs, 16 images a step.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/dab_detr/dab-detr_r50_irpe-ctx-9x9_8xb2-50e_coco.py 8
_base_ = 'dab-detr_r50_8xb2-50e_coco.py'
model = dict(encoder=dict(layer_cfg=dict(self_attn_cfg=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE', method='product', rpe_on='k', ratio=2.0)))))
