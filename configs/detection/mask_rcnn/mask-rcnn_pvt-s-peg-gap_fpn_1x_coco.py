# PVT-small with a PEG after the first block of every stage, pre-trained with average pooling.
# Recipe: the Twins release's 1x, which is PVT's; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
# CHECKPOINT is pcpvt_small.pth of the Twins release (github.com/Meituan-AutoML/Twins).
#
#     bash tools/dist_train.sh \
#         configs/detection/mask_rcnn/mask-rcnn_pvt-s-peg-gap_fpn_1x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'mask-rcnn_pvt-s_fpn_1x_coco.py'
model = dict(backbone=dict(
    drop_path_rate=0.2,  # as the Twins release
    pos_encoding=dict(_delete_=True, type='mmposenc.PEG'),
    init_cfg=None))
