"""Classes of mmdet, mmseg and mmpretrain with this project's encodings, one library a folder.

    mmdet/       data preprocessor, head, data set and metric of COCO; detr/ the DETR family: start
                 at detectors.py; its encoder is in mmposenc.detr
    mmseg/       data preprocessor, model, metrics and data sets of segmentation
    mmpretrain/  data preprocessor and classifiers; CPResNet
    datasets/    checks of the files of data sets, for all of them
    necks.py, timm_backbone.py   pyramids for backbones of one stride, and timm's backbones

A config names a class as ``mmposenc.NAME``; the registries import its file on first use.
"""
