# CPVT-Ti whose PEG starts from the PEG of a trained CPVT-Ti and is not trained further; everything
# else starts from random weights. PEG is a file of that PEG alone:
#
#     python -c "import torch; from mmposenc.checkpoint import load_checkpoint; torch.save({
#         name: value for name, value in load_checkpoint('CPVT-TI.pth')['state_dict'].items()
#         if '.pos_encodings.' in name}, 'PEG.pth')"
#
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-fixed-learned_in1k.py 8 \
#         --cfg-options model.backbone.init_cfg.checkpoint=PEG.pth
_base_ = 'cpvt-ti-fixed_in1k.py'
model = dict(backbone=dict(init_cfg=dict(type='Pretrained', checkpoint='PEG.pth', strict=False)))
