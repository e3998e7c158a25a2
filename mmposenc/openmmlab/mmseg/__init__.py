"""Classes of mmseg with this project's encodings or checks, imported on first use."""
from mmposenc.class_index import lazy_exports

__all__, __getattr__ = lazy_exports(__name__, 'openmmlab.mmseg')
