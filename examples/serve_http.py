"""An inference server as a Cotenant service: one request at a time, each takes so long.

    python examples/serve_http.py --port 8500 --service-ms 8
    python examples/serve_http.py --port 8500 --work 4

`POST /` or `GET /` answers when the "model" has worked: it sleeps for --service-ms, or multiplies matrices on the CPU
(--work times, which needs numpy; what that takes is printed). No GPU is needed. Replicas on one machine listen on ports
that follow each other, as the elements of an array do. The runtime reports p99_ms, requests_per_s, requests and
within_target, and the server its port: `cotenant show JOB` prints them, replicas follow them, and training is kept
away, or has to leave, when the target of the job file is not met. Asked to leave, it answers what has come and ends.
Job file:

    name: chat
    run: python examples/serve_http.py --port 8500
    service: {target_ms: 100, service_ms: 8, rate: 10, replicas: [1, 4]}
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cotenant import runtime

REPORT_S = 0.5
SIZE = 512  # of the matrices


def sleeping(seconds: float) -> Callable[[], object]:
    """A model that takes time and nothing else."""
    return lambda: time.sleep(seconds)


def multiplying(times: int) -> Callable[[], object]:
    """A model that computes: products of matrices, on one core."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # before numpy is loaded
    import numpy as np

    weights = np.random.default_rng(0).normal(scale=SIZE**-0.5, size=(SIZE, SIZE)).astype(np.float32)

    def work() -> object:
        values = weights
        for _ in range(times):
            values = np.maximum(values @ weights, 0.0)
        return values

    return work


@contextmanager
def serve(port: int, work: Callable[[], object], requests: runtime.Requests) -> Iterator[int]:
    """A server on the loopback whose requests queue for one model; its port. In the end it answers what has come."""
    model = threading.Lock()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with requests.timed(), model:
                work()
            body = b"answered\n"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *said: object) -> None:
            """Nothing per request."""

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # closing waits for the answers under way
        request_queue_size = 128

    server = Server(("127.0.0.1", port), Answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    """Serve until somebody ends the job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="of the first replica; 0: any that is free; it is printed")
    parser.add_argument("--service-ms", type=float, default=8.0, help="how long to sleep for a request")
    parser.add_argument("--work", type=int, default=0, metavar="N", help="N matrix products per request instead")
    args = parser.parse_args()
    work = multiplying(args.work) if args.work else sleeping(args.service_ms / 1000)
    took_ms = sorted(_timed_ms(work) for _ in range(9))[4]
    first = args.port + int(os.environ.get("COTENANT_ARRAY_INDEX", "0")) if args.port else 0
    requests = runtime.Requests()
    with serve(first, work, requests) as port, runtime.job() as job:
        print(f"serving on http://127.0.0.1:{port}/, {took_ms:.1f} ms a request", flush=True)
        for _ in job.steps():
            time.sleep(REPORT_S)
            job.report(**requests.metrics(), port=port)


def _timed_ms(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began_s)


if __name__ == "__main__":
    main()
