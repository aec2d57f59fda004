"""Logs of clusters and simulators, told apart by their columns: `read(path)` makes a `Workload` of any.

A format is one small class with a name, its columns and `parse`; adding one means writing that class and
naming it in `READERS`, the more particular formats before the more general.
"""

from __future__ import annotations

from pathlib import Path

from cotenant.core.errors import InputError, unknown
from cotenant.core.workload import Workload
from cotenant.workload.readers.alibaba import OpenbLog, PaiJobLog, PaiTaskLog
from cotenant.workload.readers.base import Reader
from cotenant.workload.readers.gavel import GavelLog
from cotenant.workload.readers.helios import HeliosLog
from cotenant.workload.readers.own import OwnLog
from cotenant.workload.readers.philly import PhillyLog
from cotenant.workload.readers.synergy import SynergyLog
from cotenant.workload.readers.table import Table, first_fields, load_csv, load_parquet, open_bytes
from cotenant.workload.readers.tiresias import ChronusLog, MuriLog, TiresiasLog

_PHILLY = PhillyLog()
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
    SynergyLog(),
)
FORMATS: dict[str, str] = {reader.name: reader.about for reader in READERS} | {_PHILLY.name: _PHILLY.about}
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
    if format == _PHILLY.name or (format is None and raw.lstrip()[:1] in (b"[", b"{")):
        return _PHILLY.parse_json(path, raw)
    reader, table = _open_table(path, raw, format)
    is_file = profile is not None and (Path(profile).suffix != "" or Path(profile).is_file())
    work = reader.parse(table, Path(profile) if profile is not None and is_file else None)
    if "steps" not in work.extra:
        return work
    from cotenant.workload.durations import with_durations  # profiles are made of tables that are read here

    return with_durations(work, profile)


def _open_table(path: Path, raw: bytes, format: str | None) -> tuple[Reader, Table]:
    if raw[:4] == b"PAR1":
        table = load_parquet(path, raw)
        return _choose(path, table.columns, format), table
    cells, separator = first_fields(raw)
    header = tuple(cells)
    candidates = [reader for reader in READERS if format in (None, reader.name)]
    for reader in candidates:
        if not reader.matches(header) and reader.matches_cells(header):
            return reader, load_csv(path, raw, separator, reader.headerless)
    reader = _choose(path, header, format)
    return reader, load_csv(path, raw, separator, None)


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
    names = ", ".join(f"'{name}'" for name in missing)
    raise InputError(
        f"{path} line 1: column{plural} missing: {names} (it looks like the {nearest.name} format); add to the header"
    )
