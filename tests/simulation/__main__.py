"""Runs seeds: many of them, or one with every step printed. Exit code 1 when one of them fails."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

_REPLAY = "python -m tests.simulation --seed"
_STORY_LINES = 40


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=100, metavar="N", help="how many seeds to play (100)"
    )
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first of them (1)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes (one for each CPU)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="play this one only")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="with --seed: print every write and every log line",
    )
    return parser.parse_args()


def _same_hashes() -> None:
    """Start again with hashes of strings that are the same in every process: sets are in the order
    of hashes.
    """
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(
            sys.executable,
            command,
            {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
        )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _play_one(seed: int, verbose: bool) -> int:
    from .simulated_cluster import simulate

    outcome = simulate(seed, _say if verbose else None)
    if not verbose:
        _say("\n".join(outcome.story))
    for problem in outcome.problems:
        _say(f"PROBLEM {problem}")
    _say(
        f"seed {seed}: {len(outcome.problems)} problems, {outcome.seconds:.0f} s of virtual "
        f"time, {outcome.commits} writes,"
        f" digest {outcome.digest}"
    )
    return 1 if outcome.problems else 0


def _tune() -> None:
    """Once for a process: its modules stay, and a cluster is thrown away as a whole when the next one
    begins.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


def _play(seed: int) -> tuple[int, list[str], list[str], float]:
    from .simulated_cluster import simulate

    if not gc.get_freeze_count():
        _tune()
    gc.collect()
    outcome = simulate(seed)
    return (
        seed,
        outcome.problems,
        outcome.story[-_STORY_LINES:] if outcome.problems else [],
        outcome.seconds,
    )


def _results(seeds: Iterable[int], jobs: int) -> Iterator[tuple[int, list[str], list[str], float]]:
    if jobs <= 1:
        yield from map(_play, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_play, seeds)


def _play_many(first: int, count: int, jobs: int) -> int:
    started, recorded = time.monotonic(), time.monotonic()
    failed: list[int] = []
    virtual = 0.0
    show = partial(_progress, count, failed, started)
    for done, (seed, problems, story, seconds) in enumerate(
        _results(range(first, first + count), jobs), 1
    ):
        virtual += seconds
        if problems:
            failed.append(seed)
            _say(f"\nseed {seed} fails:")
            _say("\n".join(f"  {line}" for line in (*story, *problems)))
            _say(f"replay it: {_REPLAY} {seed} -v\n")
        if time.monotonic() - recorded > 5:
            recorded = time.monotonic()
            show(done)
    show(count)
    _say(
        f"{virtual / 3600:.1f} hours of virtual time"
        + (f"; failed: {' '.join(map(str, failed))}" if failed else "")
    )
    return 1 if failed else 0


def _progress(count: int, failed: list[int], started: float, done: int) -> None:
    _say(f"{done} of {count} seeds, {len(failed)} failed, {time.monotonic() - started:.0f} s")


def main() -> int:
    arguments = _arguments()
    _same_hashes()
    if arguments.seed is not None:
        return _play_one(arguments.seed, arguments.verbose)
    return _play_many(arguments.first, arguments.seeds, min(arguments.jobs, arguments.seeds))


if __name__ == "__main__":
    sys.exit(main())
