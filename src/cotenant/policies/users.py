"""What goes wrong in a policy that somebody else wrote, as one line that names its file and line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cotenant.core.errors import CotenantError, InputError

PACKAGE = Path(__file__).parents[1]


@contextmanager
def blaming(policy: str, own: bool = False) -> Iterator[None]:
    """Errors that a user's policy (a file, or `own`: an object) causes become an `InputError`."""
    try:
        yield
    except CotenantError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if PACKAGE in Path(frame.filename).parents]
        foreign = [frame for frame in frames[frames.index(ours[0]) :] if frame not in ours] if ours else []
        theirs = [
            frame for frame in foreign if "site-packages" not in frame.filename and "/lib/python" not in frame.filename
        ]
        if not (own or ".py" in policy.split(":", 1)[0]):
            raise
        said = f"{type(error).__name__}: {error}"
        if theirs:
            at = theirs[-1]
            raise InputError(f"policy '{policy}': {Path(at.filename).name} line {at.lineno}: {said}") from error
        raise InputError(f"policy '{policy}': what it returns cannot be used: {said}") from error
