"""Uses of a config other than training: predictions, export, pictures of inputs, tables of results.
"""
from mmposenc.dependencies import require

require(__name__)
