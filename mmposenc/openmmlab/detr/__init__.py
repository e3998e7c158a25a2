"""Detectors and decoders of the DETR family: mmdet's, around this project's encoder. Start at
detectors.py.
"""
