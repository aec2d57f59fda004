"""An inference server without any dependency, as a Cotenant service: one request at a time, each takes so long.

    python examples/serve_http.py --port 8500 --service-ms 8

`POST /` or `GET /` answers when the "model" has worked for --service-ms (it sleeps: no GPU is needed). The runtime
reports p99_ms and requests_per_s of the last seconds: `cotenant show JOB` prints them, and training is kept away, or
has to leave, when the target of the job file is not met. Job file:

    name: chat
    run: python examples/serve_http.py --port 8500
    service: {target_ms: 100, service_ms: 8, rate: 10}
"""

from __future__ import annotations

import argparse
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cotenant import runtime

REPORT_S = 0.5


def serve(port: int, service_s: float, requests: runtime.Requests) -> ThreadingHTTPServer:
    """A server on the loopback whose requests queue for one model."""
    model = threading.Lock()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with requests.timed(), model:
                time.sleep(service_s)  # a model would compute on its GPU here
            body = b"answered\n"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *said: object) -> None:
            """Nothing per request."""

    return ThreadingHTTPServer(("127.0.0.1", port), Answer)


def main() -> None:
    """Serve until somebody ends the job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free; it is printed")
    parser.add_argument("--service-ms", type=float, default=8.0)
    args = parser.parse_args()
    requests = runtime.Requests()
    with serve(args.port, args.service_ms / 1000, requests) as server, runtime.job() as job:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"serving on http://127.0.0.1:{server.server_port}/", flush=True)
        for _ in job.steps():
            time.sleep(REPORT_S)
            job.report(**requests.metrics())


if __name__ == "__main__":
    main()
