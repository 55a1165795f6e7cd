"""Each rank's own exit status, which torchrun would not tell."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path


def recorded(app: Callable[[], object]) -> None:
    """Run `app`, note its exit status, and leave once every rank has noted its own.

    torchrun ends the others as soon as one rank fails: they stay long enough here to fail by
    themselves.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    status = 0
    try:
        app()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    directory = Path(os.environ["STATUS_DIR"])
    (directory / os.environ["RANK"]).write_text(str(status))
    end = time.monotonic() + 20
    while len(list(directory.iterdir())) < int(os.environ["WORLD_SIZE"]) and time.monotonic() < end:
        time.sleep(0.05)
    sys.exit(status)
