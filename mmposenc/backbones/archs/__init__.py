"""Published models by the name of their arch: their tables (:mod:`.vit`, :mod:`.pvt`,
:mod:`.swin`), how a backbone takes their arguments, and which of them weights or a repository have.
"""
from .arguments import arch_options, replaced_encodings, takes_arch
from .from_weights import look_alikes, needed_options

__all__ = ['arch_options', 'look_alikes', 'needed_options', 'replaced_encodings', 'takes_arch']
