"""Where this process looked for packages when it began; `doctor` judges these folders."""

from __future__ import annotations

import sys
from typing import Final

PATH: Final = tuple(sys.path)
