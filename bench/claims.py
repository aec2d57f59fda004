"""Do README and docs still say what the commands print?

`python -m bench.claims` reruns the commands of the claims that are cheap and deterministic, `--all` those too that take
minutes or whose times differ between machines; what needs a GPU is only listed. A figure that is no longer printed is
shown with its line, and the exit code is 1. `--print` shows what the commands print and compares nothing: with `--all
docs/benchmarks.md` all tables of that page, anew. `--list` shows all claims and runs nothing, and which tables have
none. How a page makes a claim is told in `bench/claims_text.py`.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.claims_text import KINDS, Claim, claims_of, row_of, stale

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("COTENANT_DATA") or ROOT.parent / "shared" / "data")
LONGEST_S = 1800.0
TABLE_ROWS = 3  # rows with figures from which on a table is one that should have a claim


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.claims", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="*", help="README.md, docs/benchmarks.md, ... (all)")
    parser.add_argument("--all", action="store_true", help="slow and timed ones too")
    parser.add_argument("--print", action="store_true", help="show what the commands print, and compare nothing")
    parser.add_argument("--list", action="store_true", help="run nothing")
    options = parser.parse_args()
    found = [claim for claim in all_claims() if not options.pages or claim.page in options.pages]
    if options.list:
        _list(found)
        return
    wrong = 0
    for claim in found:
        if claim.kind == "device" or (claim.kind != "exact" and not options.all):
            continue
        if claim.options.get("needs") == "data" and not (DATA / "traces").is_dir():
            print(f"{claim.page}:{claim.line}: left out, COTENANT_DATA names no logs: {claim.command}")
            continue
        if options.print:
            print(f"{claim.page}:{claim.line}: {claim.command}", _printed(claim.command), sep="\n", flush=True)
            continue
        lines = check(claim)
        wrong += len(lines)
        print(
            f"{claim.page}:{claim.line}: {'stale' if lines else 'holds'}: {claim.command}", *lines, sep="\n", flush=True
        )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{wrong} stale figures; {used.ru_utime + used.ru_stime:.0f} s of CPU")
    sys.exit(1 if wrong else 0)


def all_claims() -> list[Claim]:
    """Of README and docs, in order."""
    return [claim for path in pages() for claim in claims_of(ROOT, path)]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def check(claim: Claim) -> list[str]:
    """What is stale, as lines to print."""
    try:
        printed = _printed(claim.command)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return [f"{claim.page}:{claim.line}: {error}"]
    return [str(one) for one in stale(claim, printed)]


@cache
def _printed(command: str) -> str:
    """What a command prints, run once however many claims name it."""
    words = shlex.split(command.replace("$COTENANT_DATA", str(DATA)))
    run = {"python": [sys.executable], "cotenant": [sys.executable, "-m", "cotenant.cli.main"]}
    if words[0] not in run:
        raise RuntimeError(f"'{command}' begins neither with python nor with cotenant")
    plain = {"COTENANT_DATA": str(DATA), "COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        run[words[0]] + words[1:], capture_output=True, text=True, cwd=ROOT, check=False, timeout=LONGEST_S,
        env=os.environ | plain | {"PYTHONPATH": path},
    )  # fmt: skip
    if done.returncode and not done.stdout:  # a bench that ends with 1 has printed what it misses
        raise RuntimeError(f"'{command}' ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _list(found: list[Claim]) -> None:
    for kind in KINDS:
        of_kind = [claim for claim in found if claim.kind == kind]
        print(f"{kind}: {len(of_kind)}")
        for claim in of_kind:
            print(f"  {claim.page}:{claim.line}: {claim.command}")
    bare = [place for path in pages() for place in without_claim(path)]
    print(f"tables and blocks with figures and without a claim: {len(bare)}", *bare, sep="\n  ")


def without_claim(path: Path) -> list[str]:
    """Where tables and blocks of a page begin that have figures and no claim."""
    lines = path.read_text(encoding="utf-8").split("\n")
    claimed = {number for claim in claims_of(ROOT, path) for number, _ in claim.block}
    found, first, rows, fenced = [], 0, 0, False
    for number, line in enumerate([*lines, ""], 1):
        edge = line.startswith("```")
        inside = line.startswith("|") or fenced or edge
        if inside and not first:
            first, rows = number, 0
        rows += bool(inside and number not in claimed and len(row_of(number, line).figures) > 1)
        fenced = fenced != edge
        if not inside or (edge and not fenced):
            if first and rows >= TABLE_ROWS:
                found.append(f"{path.relative_to(ROOT)}:{first}")
            first = 0
    return found


if __name__ == "__main__":
    main()
