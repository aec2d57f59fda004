"""HTTP: one door to the service. `make_app` builds it over a `CoreService`."""

from __future__ import annotations

from cotenant.api.app import make_app

__all__ = ["make_app"]
