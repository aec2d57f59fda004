"""`python -m cotenant.api.describe`: the OpenAPI document, without a service, for whoever generates a client of it."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any, cast

from cotenant.api.app import make_app


def document() -> dict[str, Any]:
    """The description of all routes."""
    nothing = SimpleNamespace(desk=None, admin=None, tenants=None, accounts=None, pictures=None)
    return make_app(cast(Any, nothing)).openapi()


if __name__ == "__main__":
    json.dump(document(), sys.stdout)
