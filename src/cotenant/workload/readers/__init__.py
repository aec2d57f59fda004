"""Logs of clusters and simulators, told apart by their columns: `read(path)` makes a `Workload` of any.

A format is one small class with a name, its columns and `parse`; adding one means writing that class and
naming it in `READERS`, the more particular formats before the more general.
"""

from __future__ import annotations

from pathlib import Path

from cotenant.core.errors import InputError, unknown
from cotenant.core.errors import nearest as near_to
from cotenant.core.workload import Workload
from cotenant.workload.readers.alibaba import OpenbLog, PaiJobLog, PaiTaskLog
from cotenant.workload.readers.base import Reader
from cotenant.workload.readers.cloud import KubernetesLog, RayJobsLog
from cotenant.workload.readers.elastic import ElasticFlowLog, PolluxLog, ShockwaveLog
from cotenant.workload.readers.gavel import GavelLog
from cotenant.workload.readers.helios import HeliosLog
from cotenant.workload.readers.own import OwnLog
from cotenant.workload.readers.philly import PhillyLog
from cotenant.workload.readers.records import load_json
from cotenant.workload.readers.sacct import SacctLog
from cotenant.workload.readers.swf import SwfLog
from cotenant.workload.readers.synergy import SynergyLog
from cotenant.workload.readers.table import Table, first_fields, load_csv, load_parquet, open_bytes
from cotenant.workload.readers.tiresias import ChronusLog, MuriLog, TiresiasLog

_PHILLY, _SACCT, _SWF, _KUBERNETES, _RAY = PhillyLog(), SacctLog(), SwfLog(), KubernetesLog(), RayJobsLog()
_MARK = b"\xef\xbb\xbf"  # with which some programs begin UTF-8
READERS: tuple[Reader, ...] = (
    OwnLog(),
    MuriLog(),
    ChronusLog(),
    TiresiasLog(),
    HeliosLog(),
    PaiTaskLog(),
    PaiJobLog(),
    OpenbLog(),
    GavelLog(),
    ShockwaveLog(),
    ElasticFlowLog(),
    PolluxLog(),
    SynergyLog(),
)
_WHOLE = {log.name: log for log in (_PHILLY, _SACCT, _SWF, _KUBERNETES, _RAY)}  # no tables: read as a whole
FORMATS: dict[str, str] = {reader.name: reader.about for reader in READERS} | {
    name: log.about for name, log in _WHOLE.items()
}
"""Every format that can be read: name -> one line about it."""


def read(path: str | Path, *, format: str | None = None, profile: str | Path | None = None) -> Workload:
    """Read a log of any known format; `format` skips the detection.

    `profile` is the throughput file that a Gavel trace needs, and the one by which jobs of our own format that tell
    steps get durations; other formats ignore it. What the user should know (rows left out, columns ignored, rows
    sorted) is in `Workload.notes`.
    """
    if format is not None and format not in FORMATS:
        raise unknown("trace format", format, FORMATS)
    path = Path(path)
    raw = open_bytes(path)
    whole = _whole(path, raw, format)
    if whole is not None:
        return whole.parse(path, raw.lstrip())
    reader, table = _open_table(path, raw, format)
    is_file = profile is not None and (Path(profile).suffix != "" or Path(profile).exists())
    return finish(reader.parse(table, Path(profile) if profile is not None and is_file else None), profile)


def finish(work: Workload, profile: str | Path | None) -> Workload:
    """Durations of jobs that tell steps."""
    if "steps" not in work.extra:
        return work
    from cotenant.workload.durations import with_durations  # profiles are made of tables that are read here

    return with_durations(work, profile)


def find_reader(path: Path, first: tuple[str, ...], format: str | None) -> tuple[Reader, bool]:
    """The reader for a table with this first line, and whether the line is a job already and no header."""
    for reader in READERS:
        if format in (None, reader.name) and not reader.matches(first) and reader.matches_cells(first):
            return reader, True
    return _choose(path, first, format), False


def duration_means(path: Path, head: bytes, format: str | None) -> str:
    """What the format of a log that begins like this calls a duration."""
    whole = _whole(path, head, format, beginning=True)
    if whole is not None:
        return whole.duration_means
    if head[:4] == b"PAR1":
        return _open_table(path, open_bytes(path), format)[0].duration_means
    return find_reader(path, tuple(first_fields(head.removeprefix(_MARK))[0]), format)[0].duration_means


Whole = PhillyLog | SacctLog | SwfLog | KubernetesLog | RayJobsLog


def _whole(path: Path, raw: bytes, format: str | None, beginning: bool = False) -> Whole | None:
    """The reader of a log that is no table, by its name or by how it looks; None for tables.

    Of a `beginning` JSON cannot be read yet: what it looks like has to do.
    """
    if format is not None:
        return _WHOLE.get(format)
    text = raw.lstrip()
    if text[:1] not in (b"[", b"{"):
        return next((log for log in (_SACCT, _SWF) if log.matches(text)), None)
    if _SACCT.matches(text):
        return _SACCT
    if beginning:
        return _KUBERNETES if b'"items"' in text[:4000] else _RAY if b'"submission_id"' in text else _PHILLY
    data = load_json(path, text)
    return next((log for log in (_KUBERNETES, _RAY) if log.matches(data)), _PHILLY)


def _open_table(path: Path, raw: bytes, format: str | None) -> tuple[Reader, Table]:
    if raw[:4] == b"PAR1":
        table = load_parquet(path, raw)
        return _choose(path, table.columns, format), table
    cells, separator = first_fields(raw)
    reader, headerless = find_reader(path, tuple(cells), format)
    return reader, load_csv(path, raw, separator, reader.headerless if headerless else None)


def _choose(path: Path, columns: tuple[str, ...], format: str | None) -> Reader:
    """The first reader whose columns are all there, or an error naming what the nearest one misses."""
    candidates = [reader for reader in READERS if format in (None, reader.name)]
    for reader in candidates:
        if not reader.matches(columns):
            continue
        for name in reader.required:
            if columns.count(name) > 1:
                raise InputError(f"{path} line 1: column '{name}' appears twice; rename one of them")
        return reader

    def nearness(reader: Reader) -> float:
        return len(set(reader.required) & set(columns)) / len(reader.required)

    nearest = max(candidates, key=nearness)
    if format is None and nearness(nearest) < 0.4:
        raise InputError(
            f"{path} line 1: unknown format; expected a header such as {','.join(OwnLog.required)}, "
            f"or one of: {', '.join(FORMATS)}"
        )
    missing = [name for name in nearest.required if name not in columns]
    plural = "s are" if len(missing) > 1 else " is"
    spare = [name for name in columns if name not in nearest.required]
    close = {name: near_to(name, spare) for name in missing}
    names = ", ".join(f"'{name}'" + (f" (there is '{close[name]}')" if close[name] else "") for name in missing)
    raise InputError(
        f"{path} line 1: column{plural} missing: {names} (it looks like the {nearest.name} format); add to the header"
    )
