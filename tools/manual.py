"""`make man`: writes man pages and shell completions to build/share, from the help of the verbs.

The wheel installs them below `share/`, where man, bash, zsh and fish look for them.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import time
from pathlib import Path

from tools.locked import ROOT

from transom import __version__
from transom.cli.completion import SHELLS, completion_script
from transom.cli.main import VERBS, make_parser

SHARE = ROOT / "build/share"
# shell -> where it looks for the completions of `transom`
PLACES = {
    "bash": "bash-completion/completions/transom",
    "zsh": "zsh/site-functions/_transom",
    "fish": "fish/vendor_completions.d/transom.fish",
}


def escape_roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def _verbatim(text: str) -> str:
    return f".nf\n{escape_roff(text)}\n.fi\n"


def verb_page(verb: str, date: str) -> str:
    """The man page `transom-VERB(1)`."""
    parser, command = make_parser(verb)
    usage = parser.format_usage().removeprefix("usage: ").strip()
    page = _head(f"TRANSOM\\-{verb.upper()}", date)
    page += f".SH NAME\ntransom\\-{escape_roff(verb)} \\- {escape_roff(VERBS[verb])}\n"
    page += f".SH SYNOPSIS\n{_verbatim(usage)}.SH DESCRIPTION\n"
    page += escape_roff(command.help).replace("\n\n", "\n.PP\n") + "\n.SH OPTIONS\n"
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            page += _option(parser, action)
    page += f".SH EXAMPLES\n{_verbatim(command.examples)}"
    return page + ".SH SEE ALSO\n.BR transom (1)\n"


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    title = formatter._format_action_invocation(action)
    text = formatter._expand_help(action) if action.help else ""
    return f".TP\n\\fB{escape_roff(title)}\\fR\n{escape_roff(' '.join(text.split()))}\n"


def main_page(date: str) -> str:
    """The man page `transom(1)`: all verbs and the environment."""
    page = _head("TRANSOM", date)
    page += ".SH NAME\ntransom \\- a Kubernetes cluster with Windows nodes in one Python package\n"
    page += ".SH SYNOPSIS\n.B transom\n.I VERB\n[OBJECT] [options]\n.SH VERBS\n"
    for verb, about in VERBS.items():
        page += f".TP\n.BR transom\\-{escape_roff(verb)} (1)\n{escape_roff(about)}\n"
    page += ".SH ENVIRONMENT\n"
    for name, about in (
        ("TRANSOM_NAME", "the cluster of commands without --name (default: transom)"),
        ("KUBECONFIG", "the kubeconfig files, as for kubectl"),
        ("NO_COLOR", "if set, the output has no colours"),
        ("COLUMNS", "the width of tables, if the output is not a terminal"),
    ):
        page += f".TP\n.B {name}\n{escape_roff(about)}\n"
    return page


def _write_page(file: Path, text: str) -> None:
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


def _head(title: str, date: str) -> str:
    return f'.TH "{title}" "1" "{date}" "transom {__version__}" "Transom"\n'


def write_shared_files(share: Path, epoch: float) -> None:
    """Writes all pages and completions below `share`, replacing older ones."""
    shutil.rmtree(share, ignore_errors=True)
    date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    man = share / "man/man1"
    man.mkdir(parents=True)
    _write_page(man / "transom.1.gz", main_page(date))
    for verb in VERBS:
        _write_page(man / f"transom-{verb}.1.gz", verb_page(verb, date))
    for shell in SHELLS:
        place = share / PLACES[shell]
        place.parent.mkdir(parents=True)
        place.write_text(completion_script(shell))


if __name__ == "__main__":
    write_shared_files(SHARE, float(sys.argv[1]) if len(sys.argv) > 1 else time.time())
    print(SHARE.relative_to(ROOT))
