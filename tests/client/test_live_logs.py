"""What a real job writes is what `logs -f` prints: every byte, once, whatever happens to job and files meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_kit import PATIENCE_S, Live, live

from cotenant.backends.local import orders


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """Small files of output: those of a job here hold 64 KiB."""
    monkeypatch.setattr(orders, "_MIB", 1024)
    with live(tmp_path / "home", "srtf:min_run=0", gpus=4) as made:
        yield made


class Followed:
    """`logs -f` in a thread."""

    def __init__(self, rig: Live, job: str, **asked: Any) -> None:
        self.got, self.gaps = b"", 0
        self._news = threading.Condition()
        self._stream = rig.client.output(job, follow=True, on_gap=self._gap, **asked)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _gap(self) -> None:
        self.gaps += 1

    def _run(self) -> None:
        for data in self._stream:
            with self._news:
                self.got += data
                self._news.notify_all()

    def until(self, text: bytes) -> None:
        with self._news:
            assert self._news.wait_for(lambda: text in self.got, PATIENCE_S), self.got[-200:]

    def end(self) -> bytes:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.gaps == 0
        return self.got


def test_a_job_that_ends_is_followed_once(rig: Live) -> None:
    """Its record is forgotten and its output moves before the last look at it."""
    for run, expected in (("for i in 1 2 3; do echo $i; sleep 0.1; done", b"1\n2\n3\n"), ("true", b"")):
        job = rig.submit(run)
        followed = Followed(rig, job)
        assert followed.end() == expected
        assert Followed(rig, job).end() == expected
        assert b"".join(rig.client.output(job)) == expected


def test_a_failed_jobs_errors_are_shown(rig: Live, tmp_path: Path) -> None:
    """Each line is written when the one before has been seen."""
    wait = f"until [ -e {tmp_path}/%s ]; do sleep 0.05; done"
    job = rig.submit(f"echo out; {wait % 'one'}; echo err >&2; {wait % 'two'}; echo more; exit 3")
    followed = Followed(rig, job, stream="merged")
    for line, gate in ((b"out\n", "one"), (b"err\n", "two")):
        followed.until(line)
        (tmp_path / gate).touch()
    assert followed.end() == b"out\nerr\nmore\n"
    stamped = b"".join(rig.client.output(job, stream="merged", timestamps=True)).decode().splitlines()
    times, texts = zip(*(line.split(" ") for line in stamped), strict=True)
    assert (texts, len(set(times)), sorted(times)) == (("out", "err", "more"), 3, list(times))


def test_binary_output_of_attempts_that_fail_and_are_tried_again(rig: Live, tmp_path: Path) -> None:
    """Followed from before the first; bytes that are no text; the later attempts are shown after the earlier."""
    written = tmp_path / "written"
    run = f"head -c 9000 /dev/urandom | tee -a {written}; [ $(wc -c < {written}) -ge 27000 ]"
    job = rig.submit(run, retries=3, preemptible=False)
    assert Followed(rig, job).end() == written.read_bytes()
    assert len(rig.client.job(job).attempts) == 3


def test_suspended_and_begun_anew(rig: Live, tmp_path: Path) -> None:
    """A shorter job has it suspended (srtf), then somebody stops it: it begins again, and all is shown once."""
    written, gate = tmp_path / "written", tmp_path / "gate"
    count = "for ((i = 0; i < 60; i++)); do echo $BASHPID $i; sleep 0.02; done"
    job = rig.submit(f"({count}; test -e {gate} || (echo waits; sleep 1000)) | tee -a {written}", gpus=4, expected=600)
    followed = Followed(rig, job)
    followed.until(b" 5\n")
    rig.client.wait([rig.submit("sleep 0.1", gpus=4, expected=1)])
    followed.until(b"waits\n")
    gate.touch()
    rig.client.requeue(job)
    assert followed.end() == written.read_bytes()
    assert written.read_bytes().count(b" 59\n") == 2
    kinds = [item.kind for item in rig.client.events(job)]
    assert "suspended" in kinds


def test_more_than_is_kept(rig: Live, tmp_path: Path) -> None:
    """Through several files, each removed soon after; who comes later gets the newest, and who was there all."""
    written = tmp_path / "written"
    some = f"head -c 8000 /dev/urandom | tee -a {written}; sleep 0.03"
    job = rig.submit(f"for ((i = 0; i < 40; i++)); do {some}; done")
    assert Followed(rig, job).end() == written.read_bytes()
    late = b"".join(rig.client.output(job))
    assert 65536 <= len(late) < 320_000
    assert written.read_bytes().endswith(late)


def test_much_at_once(rig: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faster than anybody reads, but kept: 4 MiB."""
    monkeypatch.setattr(orders, "_MIB", 1 << 20)
    written = tmp_path / "written"
    job = rig.submit(f"head -c {4 << 20} /dev/urandom | tee {written}")
    assert Followed(rig, job, stream="merged").end() == written.read_bytes()
