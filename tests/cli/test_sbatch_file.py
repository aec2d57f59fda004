"""Batch scripts of Slurm: golden files for what jobs they become, and what runs of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from cotenant.cli.sbatch_file import read_script, split_words
from cotenant.cli.sbatch_script import ScriptFacts, whole_script
from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job

HERE = Path(__file__).parent / "sbatch"


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.sbatch")))
def test_scripts_become_jobs(name: str) -> None:
    """`COTENANT_GOLDEN=1` writes the files anew."""
    job, warnings = read_script((HERE / f"{name}.sbatch").read_text(), f"{name}.sbatch")
    parse_job(job)
    found = json.dumps({"job": job, "warnings": warnings}, indent=1, sort_keys=True) + "\n"
    golden = HERE / f"{name}.json"
    if os.environ.get("COTENANT_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text()


def test_the_command_line_wins() -> None:
    job, _ = read_script("#!/bin/bash\n#SBATCH -N 2 -J a\nhostname\n", "x", ["--nodes=3", "-J", "b"])
    assert (job["nodes"], job["name"]) == (3, "b")
    assert split_words(["-N", "2", "--exclusive", "-n4", "--mem=1G", "x.sh", "-N", "9"]) == (
        ["-N", "2", "--exclusive", "-n4", "--mem=1G"],
        ["x.sh", "-N", "9"],
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-N two", "x, line 2: --nodes=two: write a number"),
        ("--gres=gpu:a100:many", "x, line 2: --gres=gpu:a100:many: write N"),
        ("--mem=lots", "x, line 2: --mem=lots: write e.g. 16G"),
        ("-t soon", "x, line 2: --time=soon: write minutes"),
        ("--nodes", "x, line 2: --nodes needs a value"),
        ("nodes=2", "x, line 2: 'nodes=2' is no option"),
        ("-J 'a", "x, line 2: No closing quotation"),
        ("--gres=gpu:a100:1,gpu:v100:1", "GPUs of one type"),
    ],
)
def test_bad_lines_are_named(line: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        read_script(f"#!/bin/bash\n#SBATCH {line}\nhostname\n", "x")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("2:30", 150), ("1:00:30", 3630), ("2-0", 172800), ("1-2:30", 95400), ("1-0:0:5", 86405)],
)
def test_times_are_slurms(text: str, seconds: int) -> None:
    job, _ = read_script(f"#!/bin/sh\n#SBATCH -t {text}\n:\n", "x")
    assert job["max_runtime"] == seconds


def run(text: str, tmp_path: Path, *arguments: str, **env: str) -> str:
    job, _ = read_script(text, "x", arguments=arguments)
    told = {"PATH": os.environ["PATH"], "COTENANT_JOB_ID": "17", **env}
    done = subprocess.run(
        ["bash", "-c", job["run"]], cwd=tmp_path, env=told, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_finds_what_it_knows(tmp_path: Path) -> None:
    text = '#!/bin/bash\n#SBATCH -n 4 --array=3\necho $SLURM_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_NTASKS "$@"\n'
    assert run(text, tmp_path, "a b", COTENANT_ARRAY_INDEX="3") == "17 3 4 a b\n"


def test_srun_starts_the_tasks_of_its_node(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=3\nsrun --label -c 2 bash -c 'echo $SLURM_PROCID' | sort\n"
    assert run(text, tmp_path, COTENANT_NODE_RANK="1") == "3\n4\n5\n"
    assert run("#!/bin/bash\nsrun -n 1 -- echo one\n", tmp_path) == "one\n"


def test_output_goes_where_the_script_says(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH -J my -o %x-%4j.out\necho good; echo bad >&2\n"
    assert run(text, tmp_path) == ""
    assert run(text, tmp_path, COTENANT_ATTEMPT="2") == ""
    assert (tmp_path / "my-0017.out").read_text() == "good\nbad\n" * 2


def test_other_interpreters(tmp_path: Path) -> None:
    text = "#!/usr/bin/env python3\nimport sys\nprint('py', sys.argv[1:])\n"
    assert run(text, tmp_path, "x") == "py ['x']\n"


def test_signals_are_passed_on(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SBATCH --signal=B:USR1@60\ntrap 'echo saved; exit 0' USR1\nkill -TERM $$\nwhile :; do :; done\n"
    )
    assert run(text, tmp_path) == "saved\n"


def test_no_facts_no_lines() -> None:
    facts = ScriptFacts(1, 1, 1, 0, "", "", "", False, "TERM@30", "x", False)
    assert "trap" not in whole_script("#!/bin/sh\n:\n", facts).split("srun()")[0]
