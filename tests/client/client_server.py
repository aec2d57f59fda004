"""A real server on a free loopback port, in a thread."""

from __future__ import annotations

import threading
from types import TracebackType

import uvicorn

from cotenant.api import make_app
from cotenant.api.listening import tcp_socket
from cotenant.service.core import CoreService


class Server:
    """Ready when entered: the socket listens before the thread starts, so that nobody has to wait."""

    def __init__(self, service: CoreService) -> None:
        self.socket = tcp_socket("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(
            make_app(service, poll_s=0.01), log_level="warning", lifespan="off", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})

    def __enter__(self) -> Server:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()
