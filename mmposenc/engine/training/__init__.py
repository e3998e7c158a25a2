"""Training. Start reading at launch.py, then runner.py, loops.py and checkpoints.py; each hook has
a file of its own."""
from mmposenc.dependencies import require

require(__name__)
