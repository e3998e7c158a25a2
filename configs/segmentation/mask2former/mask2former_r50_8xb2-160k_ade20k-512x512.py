# Mask2Former on ResNet-50, sines and cosines in the pixel decoder.
# Recipe: mmseg's Mask2Former, 160k steps of 16 images, with this project's pipeline.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/mask2former/mask2former_r50_8xb2-160k_ade20k-512x512.py 8
_base_ = [
    '../../_base_/models/mask2former_r50_seg.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/mask2former_160k.py']
train_dataloader = dict(batch_size=2)
