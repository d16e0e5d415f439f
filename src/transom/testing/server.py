"""The process of a test cluster: `python -m transom.testing.server OPTIONS KUBECONFIG`.

It writes its progress to standard output, one JSON object in a line, and stops when its standard
input is closed: a test run that is killed leaves no cluster behind.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from transom.cluster.lifecycle import serve_in_foreground
from transom.kit.user_errors import UserError
from transom.testing.options import load_cluster_options


def main() -> int:
    options = load_cluster_options(sys.argv[1])
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        serve_in_foreground(
            options.up_options(Path(sys.argv[2])),
            lambda text: _report({"progress": text}),
            on_ready=lambda: _report({"ready": True}),
        )
    except UserError as problem:
        _report({"error": problem.message, "hint": problem.hint})
        return problem.code
    return 0


def _report(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201


def _stop_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
