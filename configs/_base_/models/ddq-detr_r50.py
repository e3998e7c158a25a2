# DDQ DETR on ResNet-50, four levels, 900 queries: mmdet's ddq-detr-4scale_r50.
_base_ = 'dino_r50.py'
model = dict(
    type='mmposenc.DDQDETR',
    dense_topk_ratio=1.5,
    dqs_cfg=dict(type='nms', iou_threshold=0.8),
    bbox_head=dict(type='DDQDETRHead'))
