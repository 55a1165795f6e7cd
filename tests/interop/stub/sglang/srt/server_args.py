"""Stands in for SGLang: what AReaL imports of it, and a server that answers /v1/models."""

from __future__ import annotations

import argparse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def prepare_server_args(argv: list[str]) -> None:
    """Say what the server was asked for, and serve for ever."""
    parser = argparse.ArgumentParser()
    for name in ("host", "tp-size", "base-gpu-id", "random-seed", "nnodes"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--port", type=int)
    asked, _ = parser.parse_known_args(argv)
    print("stub server", asked.tp_size, asked.base_gpu_id, asked.random_seed, flush=True)
    ThreadingHTTPServer((asked.host, asked.port), _Handler).serve_forever()
