"""What an operator says about notices: whom to tell of every job, how mail is sent, and what jobs may name."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cotenant.core.errors import InputError, unknown
from cotenant.core.jobspec import JobSpec, notify_fields

_KEYS = ("to", "when", "command", "smtp", "allow", "mail_to")
_SMTP = ("host", "port", "from", "user", "password_file", "tls")
_TLS = ("none", "starttls", "tls")


@dataclass(frozen=True, slots=True)
class Smtp:
    """How mail is sent. `tls`: none, starttls or tls."""

    host: str
    sender: str
    port: int = 25
    user: str = ""
    password: str = ""
    tls: str = "none"


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Service-wide settings. Jobs may name webhooks and addresses of their own, but no commands: those run as us.

    `allow`: hosts and networks that webhooks may reach though they are private. `mail_to`: the only domains to which
    jobs may have mail sent; empty for all.
    """

    to: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    smtp: Smtp | None = None
    allow: tuple[str, ...] = ()
    mail_to: tuple[str, ...] = ()

    def allows(self, host: str, address: str) -> bool:
        """Whether a webhook may reach an address of a host: public ones, and what the operator named."""
        found = ipaddress.ip_address(address)
        found = getattr(found, "ipv4_mapped", None) or found
        if host in self.allow or any(_within(found, item) for item in self.allow):
            return True
        return found.is_global and not found.is_multicast

    def check(self, spec: JobSpec) -> None:
        """Raise where a job names somebody who could never be told."""
        for address in spec.notify:
            if address.startswith("mailto:"):
                domain = address.rpartition("@")[2].lower()
                if self.smtp is None:
                    raise InputError(f"job '{spec.name}': field 'notify': this service sends no mail")
                if self.mail_to and domain not in self.mail_to:
                    raise InputError(f"job '{spec.name}': field 'notify': no mail is sent to '{domain}'")
                continue
            try:
                host = urlsplit(address).hostname or ""
                port = urlsplit(address).port
            except ValueError:
                host, port = "", None
            if not host or port == 0:
                raise InputError(f"job '{spec.name}': field 'notify' is '{address}': there is no host in it")
            if _is_address(host) and not self.allows(host, host):
                raise InputError(f"job '{spec.name}': field 'notify': webhooks may not reach '{host}'")


NOBODY = NotifySettings()


def read_settings(path: str) -> NotifySettings:
    """From a YAML file; every complaint names the file and the field."""
    import yaml

    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is not YAML: {error}") from None
    if not isinstance(data, Mapping):
        raise InputError(f"{path}: write a mapping with {', '.join(_KEYS)}")
    for key in data:
        if key not in _KEYS:
            raise InputError(f"{path}: {unknown('field', str(key), _KEYS)}")
    to, on = notify_fields({key: data[key] for key in ("to", "when") if key in data}, path)
    smtp = _smtp(data["smtp"], path) if "smtp" in data else None
    if smtp is None and any(address.startswith("mailto:") for address in to):
        raise InputError(f"{path}: field 'to' has mail addresses: field 'smtp' must say how mail is sent")
    words = {key: _texts(data.get(key, ()), key, path) for key in ("command", "allow", "mail_to")}
    return NotifySettings(to, on, words["command"], smtp, words["allow"], tuple(map(str.lower, words["mail_to"])))


def _smtp(part: Any, path: str) -> Smtp:
    if not isinstance(part, Mapping) or not part.get("host") or not part.get("from"):
        raise InputError(f"{path}: field 'smtp' must be a mapping with host and from")
    for key in part:
        if key not in _SMTP:
            raise InputError(f"{path}: {unknown('field in smtp', str(key), _SMTP)}")
    if part.get("tls", "none") not in _TLS:
        raise InputError(f"{path}: {unknown('smtp.tls', str(part['tls']), _TLS)}")
    password = ""
    if part.get("password_file"):
        try:
            password = Path(str(part["password_file"])).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InputError(f"{path}: cannot read smtp.password_file: {error.strerror or error}") from None
    try:
        port = int(part.get("port", 25))
    except (TypeError, ValueError):
        raise InputError(f"{path}: field 'smtp.port' must be a whole number") from None
    return Smtp(
        str(part["host"]), str(part["from"]), port, str(part.get("user", "")), password, part.get("tls", "none")
    )


def _texts(value: Any, key: str, path: str) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item for item in items):
        raise InputError(f"{path}: field '{key}' must be a text or a list of them")
    return tuple(items)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _within(address: ipaddress.IPv4Address | ipaddress.IPv6Address, item: str) -> bool:
    try:
        return address in ipaddress.ip_network(item, strict=False)
    except ValueError:
        return False
