"""What the environment of a job's process says."""

from __future__ import annotations

import json
import logging
import os

from .protocol import Settings, settings_from

log = logging.getLogger("cotenant.runtime")


def visible_gpus() -> int:
    """GPUs named in CUDA_VISIBLE_DEVICES."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return len([part for part in named.split(",") if part.strip() and part.strip() != "-1"])


def first_settings() -> Settings:
    """The settings to begin with (COTENANT_SETTINGS), as far as they are given and make sense."""
    text = os.environ.get("COTENANT_SETTINGS")
    try:
        return settings_from(json.loads(text)) if text else Settings()
    except (ValueError, TypeError, AttributeError) as error:
        log.warning("COTENANT_SETTINGS ignored: %s", error)
        return Settings()


def number(text: str | None, default: float) -> float:
    """A number, or the default where there is none or it cannot be read."""
    try:
        return float(text) if text else default
    except ValueError:
        log.warning("%r in the environment is not a number; %s is used", text, default)
        return default
