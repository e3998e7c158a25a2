"""Preparing data on disk: what ``tools/prepare_data.py`` fetches, cuts, converts and checks.

A package, because the wheel ships tools/ as scripts only. It needs neither torch nor OpenMMLab.
"""
