"""Bucket maps, bias maps and attention maps: functions that return arrays, and one that draws."""
from .maps import bias_map, bucket_map
from .panels import Panel, draw_panels, save_figure
from .pool_figures import (
    PoolRecord,
    draw_context_pool,
    draw_size_distributions,
    record_context_pools,
    size_distributions,
    write_size_distributions,
)
from .recording import AttentionRecord, record_attention

__all__ = ['AttentionRecord', 'Panel', 'PoolRecord', 'bias_map', 'bucket_map', 'draw_context_pool',
           'draw_panels', 'draw_size_distributions', 'record_attention', 'record_context_pools',
           'save_figure', 'size_distributions', 'write_size_distributions']
