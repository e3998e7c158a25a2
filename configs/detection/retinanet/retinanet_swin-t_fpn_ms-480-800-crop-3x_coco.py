# Swin-T with its table of biases.
# Recipe: the Twins release's 3x; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/retinanet/retinanet_swin-t_fpn_ms-480-800-crop-3x_coco.py 8
_base_ = [
    '../../_base_/models/retinanet_swin.py',
    '../../_base_/datasets/coco_detection_ms-480-800-crop.py',
    '../../_base_/schedules/adamw_3x.py', '../../_base_/default_runtime.py']
