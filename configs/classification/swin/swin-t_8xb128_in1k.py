# Swin-T with its table of biases, and GAP as always.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/swin/swin-t_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/swin_cls.py', '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/imagenet_swin_300e.py', '../../_base_/default_runtime.py']
