"""`transom advance`: move the time of a cluster with virtual time forward."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command

HELP = """\
Advance the time of a cluster that was started with `transom up --virtual-time`.

Controllers, kubelets and leases do everything that is due in between, in order: CronJobs run, pods of
a stopped node are evicted. The command ends when they have finished."""
EXAMPLES = """\
  transom advance 5m
  transom advance 1h30m --name blue"""

_STEP_SECONDS = 60.0  # per request, so that each one ends in time
_STEP_TIMEOUT = 120.0


def add_advance_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("duration", type=_positive_duration, metavar="DURATION", help="5m, 1h30m")
    console.add_name_option(parser)
    console.add_output_option(parser)


def _positive_duration(text: str) -> float:
    from transom.kit.durations import DurationError, parse_duration

    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds <= 0:
        raise argparse.ArgumentTypeError("time moves forward only")
    return seconds


def run_advance_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.endpoints.clock_control import CLOCK_ROOT

    config = lifecycle.existing_cluster(args.name)
    call = lifecycle.control_client(config, _STEP_TIMEOUT)
    left: float = args.duration
    while True:
        step = min(left, _STEP_SECONDS)
        answer = call("POST", CLOCK_ROOT, {"advanceSeconds": step})
        left -= step
        if left <= 0:
            break
    if args.output != "text":
        console.print_value(answer, args.output)
    else:
        print(f"The time in cluster {args.name} is {answer['time']}.")
    return 0


COMMAND = Command(HELP, EXAMPLES, add_advance_arguments, run_advance_command)
