"""Published models by the name of their arch: the tables (:mod:`.vit`, :mod:`.pvt`, :mod:`.swin`),
how a backbone takes their arguments, and how the arch of weights is found."""
from .arguments import arch_options, replaced_encodings, takes_arch
from .from_weights import look_alikes, needed_options

__all__ = ['arch_options', 'look_alikes', 'needed_options', 'replaced_encodings', 'takes_arch']
