"""What Heddle's built-in webhook calls: a server that prints alerts, each once.

    python examples/alerts_receiver.py 8095
    export HEDDLE_NOTIFY=http://127.0.0.1:8095/alerts

Plain http is for this machine only; elsewhere HEDDLE_NOTIFY is an https URL.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

seen: set[str] = set()


class Receiver(BaseHTTPRequestHandler):
    """Takes a POST with alerts."""

    def do_POST(self) -> None:
        """Print the alerts that were not seen before: a crash can make Heddle send one twice, with the same id."""
        for alert in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]:
            name = f"{alert.get('warehouse')} {alert['id']}"
            if name not in seen:
                print(f"{alert['owner'] or 'nobody'}: {alert['state']} {alert['message']}", flush=True)
            seen.add(name)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print no line for each request."""


def main(port: int) -> ThreadingHTTPServer:
    """A server on a port of 127.0.0.1 (0: a free one)."""
    return ThreadingHTTPServer(("127.0.0.1", port), Receiver)


if __name__ == "__main__":
    main(int(sys.argv[1])).serve_forever()
