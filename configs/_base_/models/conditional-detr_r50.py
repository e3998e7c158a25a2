# Conditional DETR on ResNet-50, 300 queries: mmdet's.
_base_ = 'detr_r50.py'
attn_cfg = dict(embed_dims=256, num_heads=8, attn_drop=0.1)
model = dict(
    type='mmposenc.ConditionalDETR',
    num_queries=300,
    decoder=dict(layer_cfg=dict(
        self_attn_cfg=dict(_delete_=True, cross_attn=False, **attn_cfg),
        cross_attn_cfg=dict(_delete_=True, cross_attn=True, **attn_cfg))),
    bbox_head=dict(
        type='ConditionalDETRHead',
        loss_cls=dict(
            _delete_=True, type='FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25,
            loss_weight=2.0)),
    train_cfg=dict(assigner=dict(match_costs=[
        dict(type='FocalLossCost', weight=2.0),
        dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
        dict(type='IoUCost', iou_mode='giou', weight=2.0)])))
