"""A notebook in miniature: send it a line of Python, it answers with the value. Reach it with `cotenant port`.

    job=$(cotenant submit --gpus 1 -- python examples/notebook_server.py --port 8888)
    cotenant port $job 8888 &
    curl -d '21 * 2' http://127.0.0.1:8888/

A real one goes the same way: `cotenant submit -- jupyter lab --ip 127.0.0.1 --port 8888 --no-browser`.
"""

from __future__ import annotations

import argparse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Notebook(BaseHTTPRequestHandler):
    """POST evaluates, GET says what this is. Whoever reaches it runs code: it listens on this machine only."""

    def do_GET(self) -> None:
        """A word of welcome."""
        self._answer("POST a line of Python.\n")

    def do_POST(self) -> None:
        """The value of an expression."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            self._answer(str(eval(text, {})))
        except Exception as error:
            self._answer(f"{type(error).__name__}: {error}\n", 400)

    def _answer(self, text: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8888)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Notebook)
    print(f"listens at {server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
