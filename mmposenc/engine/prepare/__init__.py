"""Prepares data on disk: what ``mmposenc prepare`` downloads, cuts, converts and checks. It needs
neither torch nor OpenMMLab.
"""
