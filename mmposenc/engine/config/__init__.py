"""Everything about configs: finding one (config.py), overriding it (options.py), checking it
(checks.py) and reading it (nodes.py); its model (models.py), and what each library calls things
(testing.py)."""
from mmposenc.dependencies import require

require(__name__)
