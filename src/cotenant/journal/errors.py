"""What can go wrong with a journal. Each text is one line that names the place and the fix."""

from __future__ import annotations

from cotenant.core.errors import CotenantError, InputError


class JournalError(CotenantError):
    """Base of all journal errors. An append that raises one was not acknowledged.

    Unless a subclass promises more, the entries may or may not be found after a restart, never in part.
    """


class JournalFull(JournalError):
    """No space left: nothing of the call was written, and the journal works again once there is space."""


class JournalReadOnly(JournalError):
    """The file cannot be written though there is space: nothing was stored, and it works again once it can be."""


class JournalAway(JournalError):
    """The server does not answer. Nothing of the call is kept, and the journal works again once the server is back."""


class JournalBusy(JournalError, InputError):
    """Another live process holds the journal; its hold ends with that process, however it ends.

    `leader` is where that one answers, where it has left word of it.
    """

    leader = ""


class JournalCorrupt(JournalError):
    """What is stored is not a journal, or records that must be there are missing."""


class JournalTooNew(JournalError, InputError):
    """The journal was written by a later version of Cotenant."""


class JournalUnavailable(JournalError, InputError):
    """The file or server cannot be reached or opened."""


class BadEntry(JournalError, ValueError):
    """The entry itself cannot be stored; nothing of its call was written, and other callers do not notice."""
