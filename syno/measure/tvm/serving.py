"""TVM's RPC tracker, or an RPC server for this machine's devices, until it is killed: `python serving.py server --key KEY ...`.

The file is self-contained: a device needs this file, Python, the pinned packages of TVM, and a C++ compiler, but no other part
of Syno.

After a session that ends with an error, such as a crashing kernel, TVM's own `tvm.exec.rpc_server` keeps running, but no longer
serves, and the tracker does not list the device. This server restarts instead. When it is ready, it prints its port.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from typing import Any

PAUSE_SECONDS = 1.0  # before a server restarts


def serve_tracker(options: argparse.Namespace) -> None:
    """Run a tracker."""
    from tvm.rpc.tracker import PopenTrackerServerState

    state = _bound(lambda port: PopenTrackerServerState(options.host, port, port + 1), options)
    _say(state.port)
    state.thread.join()


def serve_device(options: argparse.Namespace) -> None:
    """Run a server; restart it after a session that ended with an error."""
    from tvm.rpc.server import PopenRPCServerState

    host, _, port = options.tracker.rpartition(":")

    def start(at: int) -> Any:
        address = (host.strip("[]"), int(port))
        return PopenRPCServerState(options.host, at, at + 1, False, address, options.key, custom_addr=options.reported_host)

    while True:
        state = _bound(start, options)
        _say(state.port)
        state.thread.join()
        state.sock.close()
        print("the server begins again", file=sys.stderr, flush=True)
        time.sleep(PAUSE_SECONDS)


def _bound(start: Any, options: argparse.Namespace) -> Any:
    for port in range(options.port, options.port_end):
        try:
            return start(port)
        except (OSError, ValueError) as error:
            last = error
    raise SystemExit(f"no port from {options.port} to {options.port_end - 1} is free on {options.host}: {last}")


def _say(port: int) -> None:
    print(f"port {port}", flush=True)


def _end_with_input() -> None:
    """Kill this process's group when stdin is closed, which happens when the parent process dies."""
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Parse the command line, and serve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(required=True)
    for name, serve, port in (("tracker", serve_tracker, 9190), ("server", serve_device, 9090)):
        kind = kinds.add_parser(name, help=(serve.__doc__ or "").rstrip("."))
        kind.set_defaults(serve=serve)
        kind.add_argument("--host", default="127.0.0.1", help="where it listens; 0.0.0.0 is every network, without a password")
        kind.add_argument("--port", type=int, default=port, help="the first to try")
        kind.add_argument("--port-end", type=int, default=port + 100, help="the first not to try")
        kind.add_argument("--end-with-input", action="store_true", help="end when the standard input ends")
        if name == "server":
            kind.add_argument("--tracker", required=True, help="its address, HOST:PORT")
            kind.add_argument("--key", required=True, help="the device's name at the tracker")
            kind.add_argument("--reported-host", help="where clients reach this server, if the tracker sees another address")
    options = parser.parse_args()
    if options.end_with_input:
        threading.Thread(target=_end_with_input, daemon=True).start()
    options.serve(options)


if __name__ == "__main__":
    main()
