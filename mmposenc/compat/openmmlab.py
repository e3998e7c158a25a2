"""Which OpenMMLab is installed, and whether it can work."""


def require() -> None:
    """Placeholder until the versions are checked."""
