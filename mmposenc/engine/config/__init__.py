"""Everything about configs: finding one (config.py), overriding it (options.py), reading it once
(parsed.py, the record that all others ask) and checking it (checks.py); its data in a folder of the
user's (data.py), its model (models.py) and images (images.py), and tests of it (testing.py)."""
from mmposenc.dependencies import require

require(__name__)
