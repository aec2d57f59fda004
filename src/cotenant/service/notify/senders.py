"""One notice to one receiver: a POST, a mail, or a command. Each raises an `OSError` where it did not arrive."""

from __future__ import annotations

import http.client
import json
import smtplib
import socket
import ssl
import subprocess
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any
from urllib.parse import urlsplit

from cotenant.service.notify.settings import NotifySettings, Smtp

TIMEOUT_S = 10.0
Notice = Mapping[str, Any]
"""What happened: `event` (start, end, failure), `job`, `name`, `tenant`, `user`, `state`, `reason`, `at_s`."""


class NotSent(Exception):
    """It must not, or never can, be sent: trying again is no use."""


def send_webhook(url: str, notice: Notice, settings: NotifySettings) -> None:
    """POST as JSON. Only the very address that was looked at is connected to, and no redirection is followed."""
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(item[4][0]) for item in found]
    if not all(settings.allows(host, address.partition("%")[0]) for address in addresses):
        raise NotSent(f"webhooks may not reach '{host}'")
    link = socket.create_connection((addresses[0], port), TIMEOUT_S)
    try:
        if tls:
            link = ssl.create_default_context().wrap_socket(link, server_hostname=host)
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        connection.sock = link
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json", "User-Agent": "cotenant"}
        connection.request("POST", path, json.dumps(dict(notice)).encode(), headers)
        status = connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(f"it did not answer as a web server does: {error!r}") from None
    finally:
        link.close()
    if status >= 500 or status in (408, 429):
        raise OSError(f"it answered {status}")
    if status >= 300:
        raise NotSent(f"it answered {status}")


def send_mail(address: str, notice: Notice, smtp: Smtp | None) -> None:
    """By the operator's server."""
    if smtp is None:
        raise NotSent("this service sends no mail")
    mail = EmailMessage()
    mail["From"], mail["To"] = smtp.sender, address
    mail["Subject"] = f"[cotenant] job {notice['job']} ({notice['name']}): {notice['state']}"
    lines = [f"{key}: {' '.join(str(value).split())}" for key, value in notice.items()]
    mail.set_content("\n".join(lines) + "\n")
    connect = smtplib.SMTP_SSL if smtp.tls == "tls" else smtplib.SMTP
    try:
        with connect(smtp.host, smtp.port, timeout=TIMEOUT_S) as server:
            if smtp.tls == "starttls":
                server.starttls(context=ssl.create_default_context())
            if smtp.user:
                server.login(smtp.user, smtp.password)
            server.send_message(mail)
    except smtplib.SMTPRecipientsRefused as error:
        raise NotSent(f"the mail server refuses '{address}': {error}") from None
    except smtplib.SMTPException as error:
        raise OSError(f"the mail server says: {error}") from None


def run_command(command: str, notice: Notice) -> None:
    """An operator's command: the notice is its standard input, and the most important of it its environment."""
    env = {f"COTENANT_{key.upper()}": str(value) for key, value in notice.items()}
    done = subprocess.run(
        ["/bin/sh", "-c", command], input=json.dumps(dict(notice)).encode(), env={"PATH": "/usr/bin:/bin", **env},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise OSError(f"it ended with {done.returncode}")
