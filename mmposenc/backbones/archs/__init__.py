"""Published models by the name of their arch: the tables (:mod:`.vit`, :mod:`.pvt`, :mod:`.swin`),
and how a backbone takes their arguments."""
from .arguments import arch_options, replaced_encodings, takes_arch

__all__ = ['arch_options', 'replaced_encodings', 'takes_arch']
