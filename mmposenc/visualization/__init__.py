"""Bucket maps, bias maps and attention maps: functions that return arrays, and one that draws."""
from .figures import Panel, draw_panels, save_figure
from .maps import bias_map, bucket_map
from .recording import AttentionRecord, record_attention

__all__ = ['AttentionRecord', 'Panel', 'bias_map', 'bucket_map', 'draw_panels', 'record_attention',
           'save_figure']
