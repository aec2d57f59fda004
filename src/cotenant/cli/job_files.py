"""Job files, as `submit` takes them: YAML, or batch scripts of Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_job_files(files: list[str]) -> list[tuple[str, Any]]:
    """(where, mapping) of every job: a file holds one, a list of them, or several documents."""
    import yaml

    from cotenant.cli.sbatch_file import is_script
    from cotenant.core.errors import InputError

    jobs: list[tuple[str, Any]] = []
    for file in files:
        try:
            text = Path(file).read_text(encoding="utf-8")
            if is_script(text):
                jobs.append((file, _script(text, file)))
                continue
            documents = list(yaml.safe_load_all(text))
        except OSError as error:
            hint = "" if Path(file).suffix in (".yaml", ".yml") else "; a command goes after '--'"
            raise InputError(f"cannot read '{file}': {error.strerror or error}{hint}") from None
        except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise InputError(f"'{file}' is not YAML: {error}") from None
        found = [job for part in documents if part is not None for job in (part if isinstance(part, list) else [part])]
        if not found:
            raise InputError(f"'{file}' holds no job: write at least run: COMMAND")
        jobs += [(file if len(found) == 1 else f"{file}, job {n + 1}", job) for n, job in enumerate(found)]
    return jobs


def _script(text: str, file: str) -> dict[str, Any]:
    """The job of a batch script; what of it means nothing here is said."""
    import typer

    from cotenant.cli.sbatch_file import read_script

    job, warnings = read_script(text, file)
    for line in warnings:
        typer.echo(f"cotenant: {line}", err=True)
    return job
