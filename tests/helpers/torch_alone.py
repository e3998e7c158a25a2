"""A process where torch is all that mmposenc finds."""
from helpers.scripts import run_python

ABSENT = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'torchvision')
BLOCK = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {ABSENT}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
for name in {ABSENT}:
    sys.modules[name] = None
sys.meta_path.insert(0, Absent())
"""


def run_alone(code: str) -> str:
    """Runs code in a process where torch is all that mmposenc finds."""
    return run_python('-c', BLOCK + code)
