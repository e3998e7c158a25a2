"""Pictures of what encodings do: arrays and figures, on torch alone.

A figure is a function of a Subject (a model and one image) and a Choice (which layer, head, place),
both in subjects.py. Start at ``FIGURES`` of paper_figures.py, the table of all that ``draw_figure``
draws. What figures share: maps.py computes, recording.py notes attention while a model runs,
panels.py draws maps and writes files. model_figures.py draws all of one model. With OpenMMLab,
encoding_figures.py does both for the model of a config.
"""
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
