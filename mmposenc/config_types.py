"""Names of types that signatures all over the package use."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

#: A node of a config: ``dict(type='PEG', kernel_size=3)``, or mmengine's ConfigDict.
ConfigType: TypeAlias = dict[str, Any]
#: A node of a config that is only read.
ReadOnlyConfig: TypeAlias = Mapping[str, Any]
#: The size of the images of a test: a factor of the test's own size, or 'HEIGHTxWIDTH' in pixels.
ImageSize: TypeAlias = float | str
