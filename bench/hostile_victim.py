"""Tenant B, who is attacked: it has a secret in its log, environment, checkpoint and home, and listens for callers."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

secret = os.environ["SECRET"]
home = Path(os.environ["VICTIM_HOME"] or os.environ["HOME"])
for folder in (Path(os.environ["COTENANT_CHECKPOINT_DIR"]), home):
    (folder / "kept").write_text(secret)
door = socket.socket(socket.AF_UNIX)
door.bind(str(home / "door"))
os.chmod(home / "door", 0o777)
door.listen()
port = socket.create_server(("127.0.0.1", 0))
sys.stdout.write(f"{secret} listens at {home / 'door'} {port.getsockname()[1]}\n")
sys.stdout.flush()
signal.pause()
