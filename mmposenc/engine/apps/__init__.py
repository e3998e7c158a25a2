"""Uses of a config other than training: predictions, export, pictures of training images."""
from mmposenc.dependencies import require

require(__name__)
