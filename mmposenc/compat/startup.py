"""Makes any first import of OpenMMLab or torchvision import mmposenc before it.

mmcv without compiled operators, and torchvision whose own can't load, can be imported after
mmposenc alone (:mod:`mmposenc.compat`). The tools of mmdet, mmseg and mmpretrain import them before
they read a config, and so before they know of mmposenc. Hence setup.py puts a copy of this file
beside the package, with a .pth file, by which Python imports it when it starts.

That costs a finder: until one of them is imported nothing is, and mmposenc is then imported
from wherever ``sys.path`` finds it. MMPOSENC_STARTUP=0 in the environment switches it off.
"""
import os
import sys

FIRST = {'mmcv', 'mmdet', 'mmengine', 'mmpretrain', 'mmseg', 'torchvision'}


class StartupFinder:
    """Finds nothing, and is asked before all that do."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in FIRST and 'mmposenc' not in sys.modules:
            try:
                import mmposenc  # noqa: F401
            except ImportError:  # this file may be all that is left of it
                pass


if os.environ.get('MMPOSENC_STARTUP') != '0':
    sys.meta_path.insert(0, StartupFinder)
