"""The service's certificate: given, or made once and kept at home. Clients know it by its fingerprint."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
from pathlib import Path

from cotenant.core.errors import InputError

_DAYS = 3650


def load(given: str, home: Path, host: str) -> tuple[ssl.SSLContext, str]:
    """The context for `auto` or `CERT,KEY`, and the fingerprint of its certificate."""
    cert, key = _made(home, host) if given == "auto" else _given(given)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
        return context, fingerprint(cert.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise InputError(f"--tls {given}: cannot be used: {error}") from None


def fingerprint(pem: str) -> str:
    """SHA-256 of the first certificate in a text."""
    end = "-----END CERTIFICATE-----"
    first = pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(end) + len(end)]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()


def _given(given: str) -> tuple[Path, Path]:
    cert, comma, key = given.partition(",")
    if not comma:
        raise InputError(f"--tls {given}: write auto, or the files CERT,KEY")
    return Path(cert).expanduser(), Path(key).expanduser()


def _made(home: Path, host: str) -> tuple[Path, Path]:
    """Made at the first start: another one would have every client pin anew."""
    folder = home / "tls"
    cert, key = folder / "cert.pem", folder / "key.pem"
    if cert.exists() and key.exists():
        return cert, key
    if shutil.which("openssl") is None:
        raise InputError("--tls auto needs the command `openssl`: install it, or give CERT,KEY")
    folder.mkdir(mode=0o700, exist_ok=True)
    literal = host.replace(".", "").isdigit() or ":" in host
    names = ["DNS:localhost", "IP:127.0.0.1", f"{'IP' if literal else 'DNS'}:{host}"]
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", str(_DAYS), "-subj", "/CN=cotenant", "-addext", f"subjectAltName={','.join(dict.fromkeys(names))}",
        "-keyout", str(key), "-out", str(cert),
    ]  # fmt: skip
    old = os.umask(0o077)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    finally:
        os.umask(old)
    if done.returncode:
        raise InputError(f"--tls auto: openssl failed: {done.stderr.strip().splitlines()[-1:]}")
    return cert, key
