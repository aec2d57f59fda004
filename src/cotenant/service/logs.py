"""What the service says of itself, on standard error: one line each, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


def set_up(level: str, form: str) -> None:
    """Send every logger of this process there, those of libraries from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Plain())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, _number(level)))
    logging.getLogger("cotenant").setLevel(_number(level))


def _number(level: str) -> int:
    return int(getattr(logging, level.upper()))


def _part(record: logging.LogRecord) -> str:
    """Which part of the service speaks: the last word of its module."""
    return record.name.rsplit(".", 1)[-1]


def _message(record: logging.LogRecord) -> str:
    """One line, whatever was in it; a traceback only where it is asked for."""
    text = " ".join(record.getMessage().split())
    error = record.exc_info[1] if record.exc_info else None
    return f"{text}: {type(error).__name__}: {' '.join(str(error).split())}" if error is not None else text


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        return f"{when} {record.levelname.lower():<7} {_part(record)}: {_message(record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = {"time": record.created, "level": record.levelname.lower(), "part": _part(record)}
        return json.dumps(facts | {"message": _message(record)} | getattr(record, "facts", {}))
