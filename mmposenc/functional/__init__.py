"""Pure PyTorch maths of the encodings: no modules, no OpenMMLab."""
from .extents import valid_extents
from .grids import Grid, as_grid, check_tokens, key_grid
from .pair_buckets import bucket_ids
from .pooling import context_pool

__all__ = ['Grid', 'as_grid', 'bucket_ids', 'check_tokens', 'context_pool',
           'key_grid', 'valid_extents']
