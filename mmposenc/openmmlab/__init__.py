"""Classes of mmdet, mmseg and mmpretrain with this project's encodings, one library a file.

    detection.py, segmentation.py, classification.py   data preprocessors, heads and models
    detr/        the DETR family: start at detectors.py; its encoder is in mmposenc.detr
    datasets/    data sets and transforms that check their files
    necks.py, resnet.py   pyramids for backbones of one stride, and CPResNet

A config names a class as ``mmposenc.NAME``; the registries import its file on first use.
"""
