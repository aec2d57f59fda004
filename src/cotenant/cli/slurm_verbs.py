"""Slurm's commands, as the shims call them: `python -m cotenant.cli.slurm_verbs squeue -u me`.

Flags and formats are Slurm's, for those that people use most; others are named in a warning. Everything is asked of the
service through its client, as by our own verbs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cotenant.cli import slurm_tables as tables
from cotenant.cli.sbatch_file import read_script, split_words
from cotenant.client import Client
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.jobspec import parse_job
from cotenant.service.facade import EVERY, Which

_ALONE = ("parsable", "quiet", "test-only", "wait", "W", "Q", "verbose", "v", "hold", "H")


def sbatch(words: list[str]) -> int:
    """Submit a script, or `--wrap COMMAND`; options on the command line win over those in the script."""
    from cotenant.client.codec import mapping

    options, rest = split_words(words)
    wrap, options = _without(options, "wrap")
    if wrap and rest:
        raise InputError("sbatch: give a script or --wrap, not both")
    if wrap:
        text, where, arguments = f"#!/bin/sh\n{wrap}\n", "--wrap", []
    elif rest:
        where, *arguments = rest
        try:
            text = Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"sbatch: cannot read '{where}': {getattr(error, 'strerror', error)}") from None
    else:
        text, where, arguments = sys.stdin.read(), "standard input", []
    named = any(word.startswith(("-J", "--job-name")) for word in options) or "--job-name" in text or "-J" in text
    usual = "wrap" if wrap else Path(where).name if rest else "sbatch"
    job, warnings = read_script(text, where, options if named else [f"--job-name={usual}", *options], arguments)
    for line in warnings:
        print(f"sbatch: warning: {line}", file=sys.stderr)
    job["workdir"] = os.path.abspath(os.path.expanduser(job.get("workdir", ".")))
    spec = mapping(parse_job(job, where))
    if "--test-only" in options:
        print(f"sbatch: {where} would be taken", file=sys.stderr)
        return 0
    with Client() as client:
        ids = client.submit([spec])[0]
        number = ids[0].partition("_")[0].partition(".")[0]
        print(number if "--parsable" in options else f"Submitted batch job {number}")
        if {"--wait", "-W"} & set(options):
            ended = client.wait(ids)
            return max((tables.exit_code(client.job(one.id)) for one in ended), default=0)
    return 0


def _without(options: list[str], name: str) -> tuple[str, list[str]]:
    """The value of an option, and the others."""
    for at, word in enumerate(options):
        if word.startswith(f"--{name}="):
            return word.partition("=")[2], options[:at] + options[at + 1 :]
        if word == f"--{name}":
            return options[at + 1], options[:at] + options[at + 2 :]
    return "", options


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(name, add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "--usage", action="help")
    parser.add_argument("-u", "--user", "--users", "--uid", default="")
    parser.add_argument("--me", action="store_true")
    parser.add_argument("-n", "--name", default="")
    parser.add_argument("-A", "--account", "--accounts", default="")
    parser.add_argument("-j", "--jobs", default="")
    parser.add_argument("-p", "--partition", default="")
    parser.add_argument("-h", "--noheader", action="store_true")
    parser.add_argument("-o", "--format", default="")
    parser.add_argument("-l", "--long", action="store_true")
    return parser


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Options, with those that nobody here knows named and passed over."""
    found, unknown = parser.parse_known_args(words)
    for word in unknown:
        print(f"{parser.prog}: warning: '{word}' has no meaning here and is passed over", file=sys.stderr)
    return found


def _which(asked: argparse.Namespace, client: Client, states: Sequence[str] = ()) -> Which:
    def split(text: str) -> tuple[str, ...]:
        return tuple(part for part in text.split(",") if part)

    return Which(split(asked.jobs), tuple(states), split(asked.name), split(asked.user), split(asked.account))


def squeue(words: list[str]) -> int:
    """Jobs that have not ended. `--me` is what the service shows anyway: one's own, to an administrator all."""
    parser = _parser("squeue")
    parser.add_argument("-t", "--states", default="")
    parser.add_argument("-a", "--all", action="store_true")
    parser.add_argument("-r", "--array", action="store_true")
    parser.add_argument("--start", action="store_true")
    asked = _parsed(parser, words)
    states = tables.our_states(asked.states) if asked.states else tables.UNFINISHED
    with Client() as client:
        which = _which(asked, client)
        jobs = client.jobs(which, states=states, limit=10_000)
        places = tables.places(client.nodes())
    text = asked.format or (tables.LONG if asked.long else tables.SQUEUE)
    return _show(tables.formatted(text, jobs, lambda job, field: tables.job_field(job, field, places)), asked)


def scancel(words: list[str]) -> int:
    """End jobs. `-s KILL` is at once, other signals than TERM are not sent."""
    parser = _parser("scancel")
    parser.add_argument("-t", "--state", default="")
    parser.add_argument("-s", "--signal", default="")
    parser.add_argument("-f", "--full", action="store_true")
    parser.add_argument("-b", "--batch", action="store_true")
    parser.add_argument("-q", "--quiet", "-Q", "-v", "--verbose", action="store_true")
    parser.add_argument("ids", nargs="*")
    asked = _parsed(parser, words)
    signal = asked.signal.upper().removeprefix("SIG")
    if signal not in ("", "TERM", "15", "KILL", "9"):
        raise InputError(
            f"scancel: signal {asked.signal} cannot be sent: jobs are asked to end (TERM) or killed (KILL)"
        )
    with Client() as client:
        which = _which(asked, client, tables.our_states(asked.state) if asked.state else ())
        which = Which((*which.jobs, *asked.ids), which.states, which.names, which.users, which.tenants)
        if which == EVERY and not asked.me:
            raise InputError("scancel: no job identification provided")
        code = 0
        for one in client.change("cancel", which, every=which == EVERY, force=signal in ("KILL", "9")):
            if one.error:
                print(f"scancel: error: job {one.id}: {one.error}", file=sys.stderr)
                code = 1
    return code


def sinfo(words: list[str]) -> int:
    """Nodes, together by state and type, or (`-N`) one by one."""
    parser = _parser("sinfo")
    parser.add_argument("-N", "--Node", action="store_true")
    parser.add_argument("-s", "--summarize", action="store_true")
    parser.add_argument("-t", "--states", default="")
    asked = _parsed(parser, words)
    with Client() as client:
        nodes = client.nodes()
    if asked.states:
        nodes = [node for node in nodes if tables.node_state(node) in asked.states.lower().split(",")]
    groups = tables.groups(nodes, apart=asked.Node)
    text = asked.format or (tables.SINFO_NODES if asked.Node else tables.SINFO)
    return _show(tables.formatted(text, groups, tables.node_field), asked)


def sacct(words: list[str]) -> int:
    """Jobs with how they ended."""
    parser = _parser("sacct")
    parser.add_argument("-s", "--state", default="")
    parser.add_argument("-S", "--starttime", default="")
    parser.add_argument("-E", "--endtime", default="")
    parser.add_argument("-P", "--parsable2", action="store_true")
    parser.add_argument("--parsable", action="store_true")
    parser.add_argument("-X", "--allocations", action="store_true")
    parser.add_argument("-a", "--allusers", action="store_true")
    parser.add_argument("--delimiter", default="|")
    words = ["--noheader" if word == "-n" else word for word in words]
    asked = _parsed(parser, words)
    with Client() as client:
        which = _which(asked, client)
        states = tables.our_states(asked.state) if asked.state else ()
        jobs = [client.job(job.id) for job in client.jobs(which, states=states, limit=1000)]
    if asked.starttime:
        from cotenant.cli.remote import moment

        since_s = moment(asked.starttime, "--starttime")
        jobs = [job for job in jobs if (job.ended_s or since_s) >= since_s]
    rows = tables.accounted(asked.format or tables.SACCT, jobs)
    if asked.parsable or asked.parsable2:
        end = asked.delimiter if asked.parsable else ""
        for row in rows[1:] if asked.noheader else rows:
            print(asked.delimiter.join(row) + end)
        return 0
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [" ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    rule = " ".join("-" * width for width in widths)
    return _show([lines[0], rule, *lines[1:]], asked, head=2)


def _show(lines: Sequence[str], asked: Any, head: int = 1) -> int:
    for line in lines[head:] if asked.noheader else lines:
        print(line.rstrip())
    return 0


VERBS: dict[str, Callable[[list[str]], int]] = {
    "sbatch": sbatch, "squeue": squeue, "scancel": scancel, "sinfo": sinfo, "sacct": sacct,
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """One of them. What is wrong is one line, and exit code 1, as Slurm's."""
    name, *words = argv
    try:
        return VERBS[name](words)
    except CotenantError as error:
        text = " ".join(str(error).split())
        print(text if text.startswith(name) else f"{name}: error: {text}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
