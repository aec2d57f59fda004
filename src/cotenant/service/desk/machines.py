"""What people may ask of the backend: never by calling it, but to wake the scheduler, for logs and ways into jobs."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.backends.base import Backend, BackendError, Capabilities, LogReader, LogTimes, NodeInfo, Stream
from cotenant.backends.channels import Channel, ChannelSpec
from cotenant.service.observer.observer import Observer


@dataclass(frozen=True, slots=True)
class Machines:
    """The nodes as the observer saw them last, and the backend behind them."""

    observer: Observer
    backend: Backend

    def nodes(self) -> tuple[NodeInfo, ...]:
        """As they were at the last look."""
        return self.observer.nodes

    def capabilities(self) -> Capabilities:
        """As they were found at the start."""
        return self.backend.capabilities()

    def open_log(self, key: str, stream: Stream) -> LogReader:
        """The output of an attempt."""
        return self.backend.open_log(key, stream)

    def open_times(self, key: str) -> LogTimes:
        """When it came."""
        return self.backend.open_times(key)

    def open_channel(self, key: str, asked: ChannelSpec) -> Channel:
        """A way into an attempt that runs, if the backend knows of any of the kind."""
        if asked.kind not in self.backend.capabilities().channels:
            raise BackendError(f"the backend does not offer {asked.kind}")
        return self.backend.open_channel(key, asked)

    def wake(self) -> None:
        """Have the scheduler look at once."""
        self.backend.wake()
