"""Configs by name: ``mmposenc::detection/...`` and ``mmdet::...`` of installed packages
(configs.py), and those of the papers' tables, ``paper::...`` (papers.py)."""
