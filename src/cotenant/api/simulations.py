"""Comparisons of policies on an uploaded log: streamed to disk, played in a bounded child process, kept for a while."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import uuid4

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse
from starlette.requests import ClientDisconnect

from cotenant.api import schemas as s
from cotenant.api.door import answer, caller_of, encode
from cotenant.api.limits import one_line
from cotenant.core.errors import InputError, unknown
from cotenant.service.facade import Caller, Conflict, NotFound, TooMany

PATH = "/v1/simulations"
MOST_BYTES = 256 << 20
UPLOAD_S = 600.0
MOST_OF_ONE, MOST_AT_ONCE, MOST_KEPT = 1, 2, 20
MEMORY_GIB, CPU_S, FILE_GIB = 8.0, 1800, 1.0
REPORT_CSP = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline';"
    " style-src 'unsafe-inline'; img-src data:"
)

router = APIRouter(prefix=PATH, tags=["simulations"])


@dataclass(slots=True)
class SimulationRun:
    """One comparison: under way, or what came of it."""

    id: str
    caller: Caller
    folder: Path
    what: str
    cluster: str
    policies: list[str]
    began_s: float = field(default_factory=time.time)
    state: str = "running"  # running, done, failed, cancelled
    error: str = ""
    told: dict[str, Any] = field(default_factory=dict)
    ended_s: float | None = None
    child: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None

    def as_dict(self) -> dict[str, Any]:
        """For people."""
        return {
            "id": self.id, "workload": self.what, "cluster": self.cluster, "policies": self.policies,
            "state": self.state, "error": self.error, "began_s": self.began_s, "ended_s": self.ended_s,
            "policy": self.told.get("policy", ""), "done": self.told.get("done", 0), "jobs": self.told.get("jobs", 0),
            "runs": self.told.get("runs", 0), "notes": self.told.get("notes", []),
        }  # fmt: skip

    async def run(self, asked: dict[str, Any]) -> None:
        """Have the child do it, and hear how far it has come."""
        env = {
            name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME", "LANG", "TMPDIR") if name in os.environ
        }
        try:
            self.child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cotenant.api.simulation_child", cwd=self.folder, env=env,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            assert self.child.stdin is not None
            assert self.child.stdout is not None
            self.child.stdin.write(json.dumps(asked).encode() + b"\n")
            self.child.stdin.close()
            async for line in self.child.stdout:
                with suppress(ValueError):
                    self.told |= json.loads(line)
            self._over(await self.child.wait())
        finally:
            self.ended_s = time.time()
            if self.child is not None and self.child.returncode is None:
                self.child.kill()

    def _over(self, code: int) -> None:
        if self.state == "cancelled":
            return
        self.state = "done" if code == 0 and (self.folder / "report.html").is_file() else "failed"
        if self.state == "failed":
            spent = f"it was ended (code {code}): it may have {MEMORY_GIB:g} GiB and {CPU_S} s of a core"
            self.error = one_line(self.told.get("error", spent))


class Simulations:
    """Those of one application, oldest first; files are in `folder`, which is emptied at the start."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._kept = folder, dict[str, SimulationRun]()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def check(self, caller: Caller) -> None:
        """Whether a caller may begin with one more."""
        going = [one for one in self._kept.values() if one.state == "running"]
        if sum(one.caller == caller for one in going) >= MOST_OF_ONE:
            raise Conflict("a simulation of yours is under way: wait for it, or cancel it")
        if len(going) >= MOST_AT_ONCE:
            raise TooMany(f"{len(going)} simulations of others are under way: try again in a while", 30.0)

    def make_folder(self) -> Path:
        """A new one."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="cotenant-simulations-"))
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self._folder))

    def begin(self, made: SimulationRun, asked: dict[str, Any]) -> None:
        """Start a child; old ones make room."""
        made.task = asyncio.create_task(made.run(asked))
        self._kept[made.id] = made
        over = [one for one in self._kept.values() if one.state != "running"]
        for old in over[: max(len(self._kept) - MOST_KEPT, 0)]:
            self.drop(old)

    def drop(self, one: SimulationRun) -> None:
        """End it where it runs, and forget it."""
        if one.state == "running":
            one.state = "cancelled"
            if one.child is not None and one.child.returncode is None:
                one.child.kill()
        self._kept.pop(one.id, None)
        shutil.rmtree(one.folder, ignore_errors=True)

    def of(self, caller: Caller) -> list[SimulationRun]:
        """A caller's own."""
        return [one for one in self._kept.values() if one.caller == caller]

    def find(self, caller: Caller, name: str) -> SimulationRun:
        """One of a caller's own."""
        found = self._kept.get(name)
        if found is None or found.caller != caller:
            raise NotFound(f"no simulation '{name}': they are kept for a while, and until the service ends")
        return found


def _all(request: Request) -> Simulations:
    return cast(Simulations, request.app.state.simulations)


_Id = Annotated[str, InPath(pattern=r"^[0-9a-f]{32}$", description="Id of a simulation.")]
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
_GENERATE = r"^([a-z][a-z0-9-]{0,40}(:[A-Za-z0-9_=,.+-]{0,300})?)?$"
_CLUSTER = r"^[0-9]{1,5}x[0-9]{1,3}(:[A-Za-z0-9_-]{1,40})?(,[0-9]{1,5}x[0-9]{1,3}(:[A-Za-z0-9_-]{1,40})?){0,20}$"
_UPLOAD: dict[str, Any] = {
    "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


@router.post("", status_code=201, responses=s.answers(s.SimulationShown, 409, status=201), openapi_extra=_UPLOAD)
async def begin(
    request: Request,
    cluster: Annotated[str, Query(pattern=_CLUSTER, description="NODESxGPUS, as for `cotenant compare`.")],
    policies: Annotated[str, Query(max_length=1000, description="Registered policies, with commas.")],
    name: Annotated[str, Query(pattern=_NAME, description="File name of the uploaded log.")] = "log.csv",
    generate: Annotated[str, Query(pattern=_GENERATE, description="Instead of a log: a generator.")] = "",
) -> Response:
    """Compare policies on a log, which is the body, or on a generated workload. Runs in the background."""
    caller, kept = caller_of(request), _all(request)
    names = _registered(policies)
    if generate:
        _check_generator(generate)
    kept.check(caller)
    folder = kept.make_folder()
    try:
        size = await _save(request, folder / name)
        if not generate and not size:
            raise InputError("the body is empty: send the log, or name a generator")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    made = SimulationRun(uuid4().hex, caller, folder, generate or name, cluster, names)
    limits = {"memory_gib": MEMORY_GIB, "cpu_s": CPU_S, "file_gib": FILE_GIB}
    kept.begin(made, {"log": name, "generate": generate, "cluster": cluster, "policies": names, **limits})
    request.scope["cotenant.note"] = one_line(f"simulation of {made.what} ({size} bytes)")
    return answer(encode(made.as_dict()), 201)


def _registered(text: str) -> list[str]:
    """Names of policies that are registered; never files, which would be code."""
    from cotenant.core.spec import split_specs
    from cotenant.policies import known_policies, make_policy

    names = split_specs(text)
    if not 0 < len(names) <= 12:
        raise InputError("policies: name 1 to 12, separated by commas")
    for one in names:
        if one.split(":", 1)[0] not in known_policies() or "/" in one:
            raise unknown("policy", one.split(":", 1)[0], known_policies())
        make_policy(one)
    return names


def _check_generator(text: str) -> None:
    from cotenant.workload.generators import GENERATORS

    if text.split(":", 1)[0] not in GENERATORS:
        raise unknown("generator", text.split(":", 1)[0], GENERATORS)


async def _save(request: Request, path: Path) -> int:
    """The body on disk, as it comes; how many bytes."""
    size = 0
    try:
        async with asyncio.timeout(UPLOAD_S):
            with path.open("wb") as file:
                async for part in request.stream():
                    size += len(part)
                    if size > MOST_BYTES:
                        raise InputError(
                            f"the log is larger than {MOST_BYTES >> 20} MiB: `cotenant compare` has no limit"
                        )
                    file.write(part)
    except TimeoutError:
        raise InputError(f"the upload took longer than {UPLOAD_S:g} s") from None
    except ClientDisconnect:
        raise InputError("the upload broke off") from None
    return size


@router.get("", responses=s.answers(s.SimulationsShown))
async def listed(request: Request) -> Response:
    """Your simulations, oldest first."""
    return answer(encode({"simulations": [one.as_dict() for one in _all(request).of(caller_of(request))]}))


@router.get("/{simulation}", responses=s.answers(s.SimulationShown, 404))
async def one(request: Request, simulation: _Id) -> Response:
    """How far one has come."""
    return answer(encode(_all(request).find(caller_of(request), simulation).as_dict()))


@router.get("/{simulation}/report", responses=s.answers(None, 404, 409), response_class=Response)
async def report(request: Request, simulation: _Id) -> Response:
    """The report: a page of its own that may run its own script, but has no cookie and can ask nobody anything."""
    found = _all(request).find(caller_of(request), simulation)
    if found.state != "done":
        raise Conflict(f"there is no report: it is {found.state}")
    headers = {"Content-Security-Policy": REPORT_CSP, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return FileResponse(found.folder / "report.html", headers=headers, media_type="text/html; charset=utf-8")


@router.delete("/{simulation}", status_code=204, responses=s.answers(None, 404, status=204))
async def drop(request: Request, simulation: _Id) -> Response:
    """End a simulation where it runs, and forget it."""
    _all(request).drop(_all(request).find(caller_of(request), simulation))
    return Response(status_code=204)
