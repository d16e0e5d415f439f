"""Plays seeds of faults against a cluster of three API servers and three etcd members, and checks the
history of its clients. Exit code 1 when one has violations. Seeds choose the faults and operations;
timing is real, so that a seed does not replay exactly. After SIGTERM the current seed is the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.jepsen.faults import CLIENTS, FaultCluster, kind_of_fault, play_seed
from tests.jepsen.history import PAGE, describe_history
from tests.jepsen.members import NamespacedEtcd, missing_for_namespaces


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.jepsen", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="how many (10)")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first (1)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="of each (30)")
    parser.add_argument("--clients", type=int, default=CLIENTS, metavar="N", help=f"({CLIENTS})")
    parser.add_argument("--servers", type=int, default=3, metavar="N", help="API servers (3)")
    parser.add_argument(
        "--local-etcd",
        action="store_true",
        help="members on loopback with TLS: no partitions and disk faults (as without root)",
    )
    parser.add_argument(
        "--log",
        default="jepsen.log",
        metavar="FILE",
        help="of the cluster, when there are violations; FILE.SEED: the history",
    )
    return parser.parse_args()


def _tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class _Stop:
    """Set by SIGTERM: a long series ends with its totals, and deletes its processes and namespaces."""

    def __init__(self) -> None:
        self.wanted = False
        signal.signal(signal.SIGTERM, self._request)

    def _request(self, _number: int, _frame: object) -> None:
        self.wanted = True


def main() -> int:
    args = _arguments()
    stop = _Stop()
    failed, total, played = 0, 0, 0
    faults: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    missing = "--local-etcd" if args.local_etcd else missing_for_namespaces()
    if missing:
        _tell(f"no partitions, disk faults and leader changes: {missing}")
    with tempfile.TemporaryDirectory() as folder:
        etcd = None if missing else NamespacedEtcd(Path(folder) / "members")
        cluster = FaultCluster(Path(folder), args.servers, etcd)
        try:
            if etcd is not None:
                etcd.start()
            cluster.start()
            for seed in range(args.first, args.first + args.seeds):
                if stop.wanted:
                    break
                began = time.monotonic()
                history, violations = asyncio.run(
                    play_seed(cluster, seed, args.seconds, args.clients)
                )
                count = sum(one.kind != PAGE for one in history.operations)
                total += count
                played += 1
                faults.update(kind_of_fault(text) for text in history.faults)
                events = sum(len(watch.changes) for watch in history.watches)
                _tell(
                    f"seed {seed}: {count} operations, {events} events, "
                    f"{history.unavailable} without an answer, {len(violations)} violations, "
                    f"{time.monotonic() - began:.0f} s"
                )
                errors.update(history.errors)
                for text in violations[:20]:
                    _tell(f"  {text}")
                if violations:
                    failed += 1
                    Path(args.log).write_text(cluster.log())
                    Path(f"{args.log}.{seed}").write_text(
                        describe_history(history.operations, history.watches)
                    )
        finally:
            cluster.delete()
            if etcd is not None:
                etcd.stop()
    _tell(", ".join(f"{count} {name}" for name, count in faults.most_common()))
    for text, times in errors.most_common(10):
        _tell(f"  {times} times {text}")
    _tell(f"{played} seeds, {total} operations, {failed} with violations")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
