"""mmdet's detectors of the DETR family with this project's encoder. Start at detectors.py."""
