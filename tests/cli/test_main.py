"""How command lines are parsed, for all verbs."""

from __future__ import annotations

import argparse

import pytest

from transom.cli import main


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("verb")
    parser.add_argument("word", nargs="*")
    parser.add_argument("--name", default="transom")
    return parser


@pytest.mark.parametrize(
    ("line", "words", "name"),
    [
        ("list", [], "transom"),
        ("stop a b --name blue", ["a", "b"], "blue"),
        ("stop --name blue a b", ["a", "b"], "blue"),
        ("stop a --name blue b", ["a", "b"], "blue"),
        ("exec --name blue a -- ls --name -l", ["a", "ls", "--name", "-l"], "blue"),
        ("exec a -- ls -- x", ["a", "ls", "--", "x"], "transom"),
        ("list --", [], "transom"),
    ],
)
def test_options_stand_anywhere_before_two_dashes(line: str, words: list[str], name: str) -> None:
    args = main._parse(_parser(), line.split())
    assert (args.verb, args.word, args.name) == (line.split()[0], words, name)


@pytest.mark.parametrize(
    ("line", "words", "name"),
    [
        ("exec a arp -a", ["a", "arp", "-a"], "transom"),
        ("exec --name blue a arp -a --name x", ["a", "arp", "-a", "--name", "x"], "blue"),
        ("exec a --name blue git log -- file", ["a", "git", "log", "--", "file"], "blue"),
        ("exec a -- arp -a", ["a", "arp", "-a"], "transom"),
        ("--name=blue exec a ls -l", ["a", "ls", "-l"], "blue"),
        ("stop a b --name blue", ["a", "b"], "blue"),
        ("exec a", ["a"], "transom"),
    ],
)
def test_all_that_follows_a_command_for_a_node_belongs_to_it(
    line: str, words: list[str], name: str
) -> None:
    parser, _ = main.make_parser("node")
    args = main._parse(parser, line.split())
    assert (args.node, args.name) == (words, name)


def test_a_verb_with_verbs_of_its_own() -> None:
    parser = argparse.ArgumentParser()
    parser.add_subparsers(dest="verb").add_parser("save").add_argument("image", nargs="+")
    args = main._parse(parser, ["save", "a", "--", "-b"])
    assert (args.verb, args.image) == ("save", ["a", "-b"])


def test_one_word_behind_two_dashes() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("query", nargs="+")
    assert main._parse(parser, ["--", "-x"]).query == ["-x"]
