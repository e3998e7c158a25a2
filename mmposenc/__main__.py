"""``python -m mmposenc``, and ``torchrun -m mmposenc``, are the command ``mmposenc``."""
import os
import sys

# -m looks for modules in the current folder first; the command does not look there.
if not getattr(sys.flags, 'safe_path', False) and sys.path[0] in ('', os.getcwd()):
    del sys.path[0]

from .commands import main

if __name__ == '__main__':
    main()
