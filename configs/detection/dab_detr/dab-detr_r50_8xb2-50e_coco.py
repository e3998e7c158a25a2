# DAB-DETR on ResNet-50, 300 anchors: mmdet's; scaled sines and cosines in the encoder.
# Recipe: mmdet's DAB-DETR, 50 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/dab_detr/dab-detr_r50_8xb2-50e_coco.py 8
_base_ = [
    '../../_base_/models/conditional-detr_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/dab-detr_50e.py', '../../_base_/default_runtime.py']

ffn_cfg = dict(ffn_drop=0.0, act_cfg=dict(_delete_=True, type='PReLU'))
model = dict(
    type='mmposenc.DABDETR',
    with_random_refpoints=False,
    num_patterns=0,
    encoder=dict(layer_cfg=dict(self_attn_cfg=dict(dropout=0.0), ffn_cfg=ffn_cfg)),
    decoder=dict(
        query_dim=4, query_scale_type='cond_elewise', with_modulated_hw_attn=True,
        layer_cfg=dict(
            self_attn_cfg=dict(attn_drop=0.0), cross_attn_cfg=dict(attn_drop=0.0),
            ffn_cfg=ffn_cfg)),
    positional_encoding=dict(temperature=20),
    bbox_head=dict(type='DABDETRHead', loss_cls=dict(loss_weight=1.0)),
    train_cfg=dict(assigner=dict(match_costs=[
        dict(type='FocalLossCost', weight=2.0, eps=1e-8),
        dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
        dict(type='IoUCost', iou_mode='giou', weight=2.0)])),
    test_cfg=dict(max_per_img=300))
