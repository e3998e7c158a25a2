# The quickstart's RetinaNet on a pretrained RoPE-ViT-S, of which all is fine-tuned, with the decays
# of ViTDet. Not trained here. More: docs/rope-vit.md.
#
#     python tools/train.py configs/detection/small/retinanet_rope-vit-s_sfp_1xb4-12e_trees.py
_base_ = [
    '../../_base_/models/retinanet_pvt-micro-peg.py', '../../_base_/datasets/trees_detection.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='rope-vit-small-mixed', out_indices=(11,),
        drop_path_rate=0.1, mask_padding=True,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch16_rope_mixed_224.naver_in1k')),
    neck=dict(
        _delete_=True, type='mmposenc.SimpleFeaturePyramid', in_channels=384, out_channels=64,
        scales=(2, 1, 0.5), num_outs=3))
optim_wrapper = dict(
    optimizer=dict(lr=0.0001, weight_decay=0.1),
    constructor='mmposenc.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(_delete_=True, layer_decay_rate=0.7))
