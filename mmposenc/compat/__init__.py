"""What lets the OpenMMLab stack run without compiled operators; a no-op where they exist.

:func:`prepare` runs at ``import mmposenc`` and only installs import finders, so it costs
microseconds and imports neither torch nor mmcv:

- ``mmcv._ext`` is provided in pure PyTorch when no compiled one can be found;
- torchvision can be imported where its binary operators cannot load;
- the forks' "Could not import OneDL" lines, which concern an optional package, stay unprinted;
- ``mmposenc::detection/...``, ``mmseg::...`` name configs of what is installed.

A package that needs OpenMMLab asks :mod:`mmposenc.dependencies` before it imports any of it.
"""
import sys

from .finders import FallbackFinder, PatchFinder

__all__ = ['prepare']


def prepare() -> None:
    """Installs the import finders once; modules imported before that are put right at once."""
    installed = {type(finder) for finder in sys.meta_path}
    if FallbackFinder not in installed:
        # It comes last, so that a compiled mmcv._ext is always found first.
        sys.meta_path.append(FallbackFinder())
    if PatchFinder not in installed:
        finder = PatchFinder()
        sys.meta_path.insert(0, finder)
        finder.apply_to_imported()
