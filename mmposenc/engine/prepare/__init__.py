"""Preparing data on disk: what ``mmposenc prepare`` fetches, cuts, converts and checks.

It needs neither torch nor OpenMMLab.
"""
