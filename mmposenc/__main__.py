"""``python -m mmposenc``, and ``torchrun -m mmposenc``, are the command ``mmposenc``."""
from .commands import main

if __name__ == '__main__':
    main()
