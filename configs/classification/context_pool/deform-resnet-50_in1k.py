# ResNet-50 with deformable convolutions in its last stage (mmdet's), beside CP-ResNet-50.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/deform-resnet-50_in1k.py 8
_base_ = 'resnet-50_in1k.py'
model = dict(backbone=dict(
    _delete_=True, type='mmdet.ResNet', depth=50, out_indices=(3,), norm_eval=False,
    dcn=dict(type='DCN', deform_groups=1, fallback_on_stride=False),
    stage_with_dcn=(False, False, False, True)))
