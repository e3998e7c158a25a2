"""Any position encoding, in any backbone or DETR encoder, by one line of config."""
__version__ = "0.1.0"
