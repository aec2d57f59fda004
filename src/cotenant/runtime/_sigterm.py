"""SIGTERM as a wish to stop, for scripts that do not handle it themselves."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType


class SigtermWatch:
    """Notes the signal instead of dying of it, in the main thread and only where nobody else handles it."""

    def __init__(self) -> None:
        self.came = False
        self._set = False

    def watch(self) -> None:
        """From now on."""
        if not self._set and _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._note)
            os.register_at_fork(after_in_child=self.release)  # a data loader's worker dies of it as usual
            self._set = True

    def release(self) -> None:
        """Give the signal back."""
        if self._set and _in_main_thread() and signal.getsignal(signal.SIGTERM) == self._note:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._set = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
