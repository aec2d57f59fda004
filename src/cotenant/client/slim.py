"""httpx without its own command line, whose click, rich and pygments take longer to load than all the rest of it."""

from __future__ import annotations

import sys

_PART = "httpx._main"

if "httpx" not in sys.modules:
    sys.modules[_PART] = None  # type: ignore[assignment]
import httpx  # noqa: E402

if sys.modules.get(_PART) is None:
    sys.modules.pop(_PART, None)

__all__ = ["httpx"]
