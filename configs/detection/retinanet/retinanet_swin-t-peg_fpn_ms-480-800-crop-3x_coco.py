# Swin-T with a PEG after the first block of each stage instead of its biases.
# Recipe: the Twins release's 3x; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
# CHECKPOINT is a classifier of configs/classification/swin/swin-t-peg_8xb128_in1k.py. None was
# released: train one, or start from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh \
#         configs/detection/retinanet/retinanet_swin-t-peg_fpn_ms-480-800-crop-3x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/retinanet_swin.py',
    '../../_base_/datasets/coco_detection_ms-480-800-crop.py',
    '../../_base_/schedules/adamw_3x.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    rel_pos_encoding=None, pos_encoding=dict(type='mmposenc.PEG'), init_cfg=None))
