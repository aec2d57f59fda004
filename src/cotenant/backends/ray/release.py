"""Give the GPUs of a service that is no more back to Ray: `python -m cotenant.backends.ray.release ray:address=...`.

The backend is written as for `cotenant serve`; the service's folder is that of COTENANT_HOME, or a second word.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cotenant.backends import open_backend
from cotenant.backends.ray.backend import RayBackend
from cotenant.core.errors import CotenantError


def main(text: str, home: Path) -> int:
    """End all agents, unless they have jobs."""
    try:
        backend = open_backend(text, home)
        try:
            assert isinstance(backend, RayBackend), f"{text} is no Ray backend"
            sys.stdout.write(f"{backend.release()} agents have ended\n")
        finally:
            backend.close()
    except CotenantError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    usual = os.environ.get("COTENANT_HOME") or Path.home() / ".cotenant"
    sys.exit(main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else usual)))
