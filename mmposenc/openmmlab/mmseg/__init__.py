"""Classes of mmseg with this project's encodings or checks, imported on first use."""
from mmposenc.class_index import lazy_classes

__all__, __getattr__ = lazy_classes(__name__, 'openmmlab.mmseg')
