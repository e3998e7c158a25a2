"""Weights of D-FINE and of DEIM on D-FINE, of their releases (Peterande/D-FINE, ShihuaHuang95/DEIM)
and of Hugging Face, for :class:`mmposenc.DFINE` on :class:`mmposenc.HGNetV2`."""
from __future__ import annotations

from .rtdetr import HUGGING_FACE, detector_rules, huggingface_rules, mlp_rule
from .rules import DETECTOR, Rule, Source

_DFINE = (
    Rule(r'backbone\.stem\.(.*)', r'backbone.timm_model.stem.\1'),
    Rule(r'backbone\.stages\.(\d)\.(.*)', r'backbone.timm_model.stages_\1.\2'),
    Rule(r'encoder\.downsample_convs\.(\d)\.0\.cv1\.(.*)', r'neck.pointwise_convs.\1.\2'),
    Rule(r'encoder\.downsample_convs\.(\d)\.0\.cv2\.(.*)', r'neck.downsample_convs.\1.\2'),
    Rule(r'decoder\.(decoder\.layers\.\d+\.gateway\..*)', r'\1'),
    mlp_rule(r'decoder\.pre_bbox_head', 'decoder.pre_bbox_head'),
    mlp_rule(r'decoder\.decoder\.lqe_layers\.(\d)\.reg_conf',
             r'bbox_head.lqe_branches.\1.reg_conf'),
    Rule(r'decoder\.(up|reg_scale)', r'bbox_head.bins.\1'),
    Rule(r'decoder\.decoder\.(up|reg_scale)', None, 'the same numbers as those of decoder'),
    *detector_rules((1, 3)),
)
#: Hugging Face's names as those of the release, where RT-DETR has none or others.
_HUGGING_FACE = (
    (r'^model\.backbone\.model\.embedder', 'backbone.stem'),
    (r'^model\.backbone\.model\.encoder', 'backbone'),
    (r'\.convolution\.', '.conv.'), (r'\.normalization\.', '.bn.'),
    (r'^model\.decoder\.(pre_bbox_head|up|reg_scale)', r'decoder.\1'),
    (r'\.mlp\.layers\.0\.', '.linear1.'), (r'\.mlp\.layers\.1\.', '.linear2.'),
    (r'(_blocks\.\d)\.conv([14])\.', r'\1.cv\2.'), (r'(_blocks\.\d)\.csp_rep1\.', r'\1.cv2.0.'),
    (r'(_blocks\.\d)\.conv2\.', r'\1.cv2.1.'), (r'(_blocks\.\d)\.csp_rep2\.', r'\1.cv3.0.'),
    (r'(_blocks\.\d)\.conv3\.', r'\1.cv3.1.'),
    (r'(downsample_convs\.\d)\.conv([12])\.', r'\1.0.cv\2.'),
    *HUGGING_FACE)

SOURCES = (
    # A whole detector, or its backbone alone.
    Source('d-fine', _DFINE, ((r'^(?=stem\.|stages\.)', 'backbone.'),), network=DETECTOR,
           files="the releases of D-FINE and DEIM's D-FINE"),
    Source('huggingface-d-fine', huggingface_rules(_DFINE), _HUGGING_FACE, network=DETECTOR,
           files='D-FINE of Hugging Face'),
)
