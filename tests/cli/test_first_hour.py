"""README and `docs/first-hour.md`, followed literally: every block is typed into one shell, at a terminal, in an empty
folder."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first-hour.md"
_BLOCK = re.compile(r"^```bash\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
_LONGEST_S = 120.0  # for one block


class Terminal:
    """A shell at a terminal of its own. What is typed is not echoed, so only answers come back."""

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(folder), "TERM": "dumb", "PS1": "", "LANG": "C.UTF-8", "COLUMNS": "200"}
        if "PYTHONPATH" in os.environ:
            env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self._folder = folder
        self.pid, self._end = os.forkpty()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], env)  # an interactive one, with its jobs

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def until(self, pattern: str) -> str:
        """What it prints up to a match."""
        seen, end_s = b"", time.monotonic() + _LONGEST_S
        while (left_s := end_s - time.monotonic()) > 0:
            if select.select([self._end], [], [], left_s)[0]:
                seen += os.read(self._end, 65536)
                text = _ESCAPE.sub("", seen.decode(errors="replace"))
                if re.search(pattern, text, re.MULTILINE):
                    return text
        raise AssertionError(f"no {pattern} after {_LONGEST_S:g} s:\n{seen.decode(errors='replace')}")

    def do(self, number: int, typed: str) -> str:
        """Carry a block out, by name: what is typed ahead would go to whoever reads first. What a shell is told in the
        terminal that it opened is typed when it asks."""
        if "cotenant shell" in typed:
            first, rest = typed.split("\n", 1)
            self.type(f"{first}; echo block {number} is o''ver\n")
            text = self.until("[#$] ?$")
            self.type(rest)
        else:
            (self._folder / f"block-{number}.sh").write_text(typed, encoding="utf-8")
            self.type(f". ./block-{number}.sh; echo block {number} is o''ver\n")
            text = ""
        return text + self.until(f"block {number} is over$")

    def close(self) -> None:
        """Whatever still runs in it ends with it, the service too."""
        self.type("cotenant shutdown --jobs stop --no-wait; kill $(jobs -p); exit\n")
        os.close(self._end)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    found = Terminal(tmp_path)
    found.type("stty -echo; PS1=; PS2=; echo rea''dy\n")
    found.until("^ready$")
    try:
        yield found
    finally:
        found.close()


def blocks(page: Path = PAGE) -> list[tuple[str, list[str]]]:
    """What is typed, and the lines that are promised."""
    return [(typed, (shown or "").splitlines()) for typed, shown in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def matches(line: str, text: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in line.split("..."))
    return re.search(rf"^\s*{pattern}\s*$", text, re.MULTILINE) is not None


@pytest.mark.slow
def test_the_first_hour(terminal: Terminal) -> None:
    assert len(blocks()) > 10, "or the page was not read"
    follow(terminal, blocks())


@pytest.mark.slow
def test_the_readme(terminal: Terminal, tmp_path: Path) -> None:
    page = ROOT / "README.md"
    (policy,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.py").write_text(policy, encoding="utf-8")
    assert len(blocks(page)) == 4
    assert "Traceback" not in follow(terminal, blocks(page))


def follow(terminal: Terminal, given: list[tuple[str, list[str]]]) -> str:
    """Type every block and look for what it promises; all that was printed."""
    seen = ""
    for number, (typed, promised) in enumerate(given):
        text = terminal.do(number, typed)
        missing = [line for line in promised if not matches(line, text)]
        assert not missing, f"{missing} after\n{typed}\nin\n{text}"
        seen += text
    return seen
