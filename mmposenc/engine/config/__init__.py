"""Configs: found (config.py), overridden (options.py), checked (checks.py), read (nodes.py); the
model of one (models.py) and what each library calls things (testing.py).
"""
from mmposenc.dependencies import require

require(__name__)
