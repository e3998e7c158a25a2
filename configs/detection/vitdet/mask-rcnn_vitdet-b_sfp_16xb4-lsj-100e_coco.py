# ViTDet's Mask R-CNN on ViT-B, from MAE's weights.
# Recipe: the paper's and its release's, large-scale jitter, 184,375 steps of 64 images; the release
# trains in float16 (--amp).
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/vitdet/mask-rcnn_vitdet-b_sfp_16xb4-lsj-100e_coco.py 16
_base_ = [
    '../../_base_/models/mask-rcnn_vitdet.py', '../../_base_/datasets/coco_instance_lsj-1024.py',
    '../../_base_/schedules/vitdet_100e.py']
train_dataloader = dict(batch_size=4)
