"""The profile file: written and read back, added to, refused with one line, and what becomes of it as a profile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.beliefs.live_profiles import LiveKind, LiveProfiles, Seen
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, make_workload
from cotenant.workload.profiles import as_shared, load_profile
from cotenant.workload.profiles.curves import load_curves
from cotenant.workload.profiles.lifecycle import LifecycleRow
from cotenant.workload.profiles.profile_file import (
    Measured,
    MeasuredModel,
    MeasuredPair,
    ProfileFile,
    SpeedPoint,
    load_profile_file,
)
from cotenant.workload.readers import read

GPT = Measured(
    batch=16, steps_per_s=8.0, spread=0.01, gpu_gib=60.0, busy=1.0, cores=1.5, mem_gib=3.0,
    lifecycle=LifecycleRow(12.0, 2.0, 1.0, 6.0, 1.5, 0.5),
    batches=(SpeedPoint(8, 14.0, 0.01, 35.0, 0.9),), sub_batches=(SpeedPoint(2, 7.0, 0.01, 35.0),),
    by_cores=((1.0, 6.0), (2.0, 8.0)), slices=(("1g", 0.2), ("3g", 0.6)),
)  # fmt: skip
LSTM = Measured(steps_per_s=100.0, gpu_gib=4.0, busy=0.4)


def written(path: Path) -> ProfileFile:
    """Two models on an H200, one of them on an A100, too, and a pair."""
    file = ProfileFile()
    file = file.with_model("gpt2", MeasuredModel(("python", "a.py"), "/x", 1, {"h200": GPT}), {"h200": 140.0})
    slower = Measured(batch=16, steps_per_s=4.0)
    file = file.with_model("gpt2", MeasuredModel(("python", "a.py"), "/x", 1, {"a100": slower}), {"a100": 80.0})
    file = file.with_model("LSTM", MeasuredModel(("python", "b.py"), "/x", 1, {"h200": LSTM}), {})
    file = file.with_pair(MeasuredPair("h200", "time", "lstm", "gpt2", 0.5, 0.8, 0.02))
    file = file.with_pair(MeasuredPair("h200", "mps", "lstm", "gpt2", 0.7, 0.9))
    file.save(path)
    return file


def work_of(*models: str) -> Any:
    one = np.ones(len(models))
    return make_workload("test", 0 * one, np.ones(len(models), np.int64), one, model=Codes.of(models))


def test_round_trip_and_merge(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    file = written(path)
    again = load_profile_file(path)
    assert again == file
    assert again.reference == "h200"
    assert set(again.models["gpt2"].on) == {"h200", "a100"}
    turned = again.pair("h200", "time", "gpt2", "LSTM")
    assert turned is not None
    assert (turned.a, turned.a_speed, turned.b_speed, turned.b_spread) == ("gpt2", 0.8, 0.5, 0.02)
    faster = Measured(batch=16, steps_per_s=9.0, lifecycle=LifecycleRow(start_s=10.0))
    merged = again.with_model("GPT2", MeasuredModel(("python", "a.py"), "/x", 1, {"h200": faster}), {}).models["GPT2"]
    assert (merged.on["h200"].steps_per_s, merged.on["h200"].gpu_gib) == (9.0, 60.0)
    assert (merged.on["h200"].lifecycle.start_s, merged.on["h200"].lifecycle.save_s) == (10.0, 2.0)
    assert "a100" in merged.on
    json.loads(path.read_text())  # no NaN: any reader of JSON can have it


def test_a_profile_of_all_that_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    written(path)
    work = work_of("gpt2", "lstm", "gpt2 (batch size 8)", "nobody")
    found = load_profile(path, work, ("h200", "a100"))
    at = {model: number for number, (model, _) in enumerate(found.kinds)}
    gpt, lstm, half, nobody = (at[name] for name in ("gpt2", "lstm", "gpt2 (batch size 8)", "nobody"))
    assert found.speed[gpt, :, 0].tolist() == [1.0, 0.5]
    assert found.steps_per_s[[gpt, lstm, half]].tolist() == pytest.approx([8.0, 100.0, 14.0])
    assert np.isnan(found.steps_per_s[nobody])
    together = found.together
    assert together is not None
    assert (together.ratio[gpt, lstm, 0], together.ratio[lstm, gpt, 0]) == (0.8, 0.5)
    assert together.ratio[gpt, gpt, 0] == pytest.approx(0.5, abs=0.2)  # not measured: by the formula
    assert together.ratio[gpt, gpt, 1] == 0  # 60 GiB twice do not fit into 80
    assert not together.ratio[nobody].any()
    assert together.pace[gpt, :3].tolist() == [1.0, 7 / 8, 0.0]
    assert together.memory_gib[gpt, :2].tolist() == [60.0, 35.0]
    assert together.busy[lstm] == 0.4
    assert found.pairs is not None
    assert found.pairs.pair_speed(gpt, lstm, 0) == (0.8, 0.5)
    assert found.slice_speeds[found.kinds.index(("gpt2", 1))] == {"1g": 0.2, "3g": 0.6}
    assert found.stage_s is not None
    assert found.stage_s[lstm].tolist() == pytest.approx([0.0, 0.006, 0.004, 0.0])
    assert found.lifecycle is not None
    assert found.lifecycle.row(gpt) == GPT.lifecycle
    assert found.sensitivity is not None
    speed = found.sensitivity.speed(np.array([gpt, lstm]), np.array([1.0, 1.0]), np.array([9.0, 9.0]))
    assert speed.tolist() == pytest.approx([0.75, 1.0])
    assert any("nobody" in note for note in found.notes)


@pytest.mark.parametrize(("busy", "speeds"), [(0.9, (0.6, 0.88)), (0.7, (0.5, 0.8))])
def test_beside_a_busy_job_steps_per_second_count_and_else_speed_against_alone(
    busy: float, speeds: tuple[float, float], tmp_path: Path
) -> None:
    """When the pair was measured the host was faster: 120 and 8.8 steps/s alone, 60 and 7.04 beside each other."""
    path, file = tmp_path / "profile.json", ProfileFile()
    for name, one in (("gpt2", replace(GPT, busy=busy)), ("lstm", LSTM)):
        file = file.with_model(name, MeasuredModel(("python", "a.py"), "/x", 1, {"h200": one}), {"h200": 140.0})
    pair = MeasuredPair("h200", "time", "lstm", "gpt2", 0.5, 0.8, a_alone=120.0, b_alone=8.8)
    file.with_pair(pair).save(path)
    together = load_profile(path, work_of("lstm", "gpt2"), ("h200",)).together
    assert together is not None
    found = tuple(together.ratio[a, b, 0] for a, b in ((0, 1), (1, 0)))
    assert sorted(found) == pytest.approx(speeds)
    file.with_pair(replace(pair, a_alone=250.0)).save(path)
    together = load_profile(path, work_of("lstm", "gpt2"), ("h200",)).together
    assert together is not None
    assert together.ratio.max() <= 1.0  # nobody is faster beside others than alone


def test_the_way_of_sharing_is_that_of_the_service(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    written(path)
    assert as_shared(str(path), "mps") == f"{path}:sharing=mps"
    assert as_shared("none", "mps") == "none"
    profiles = LiveProfiles(as_shared(str(path), "mps"), ["h200"], {"h200": 140.0})
    gpt, lstm = LiveKind(("gpt2", 1)), LiveKind(("lstm", 1))
    for kind in (gpt, lstm):
        profiles.kind_of(kind)
    assert profiles.together(Seen()).ratio[0, 1, 0] == 0.9
    assert profiles.steps_per_s(gpt) == 8.0
    assert profiles.lifecycle_of(gpt) == GPT.lifecycle
    assert np.isnan(profiles.lifecycle_of(LiveKind(("other", 1))).start_s)
    with pytest.raises(InputError, match="unknown sharing"):
        load_profile(f"{path}:sharing=both", work_of("gpt2"), ("h200",))


def test_curves_come_from_either_file(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    written(path)
    curve = load_curves(path)["gpt2"]
    assert (curve.cores.tolist(), curve.steps_per_s.tolist(), curve.mem_gib) == ([1.0, 2.0], [6.0, 8.0], 3.0)


def test_steps_become_seconds(tmp_path: Path) -> None:
    path, log = tmp_path / "profile.json", tmp_path / "jobs.csv"
    written(path)
    log.write_text("job_id,submit_s,num_gpus,model,steps,batch\na,0,1,gpt2,80,\nb,1,1,gpt2,28,8\n")
    assert read(log, profile=path).duration_s.tolist() == pytest.approx([10.0, 2.0])
    log.write_text("job_id,submit_s,num_gpus,duration_s,model,steps\na,0,1,7,nobody,80\nb,1,1,,lstm,100\n")
    assert read(log, profile=path).duration_s.tolist() == pytest.approx([7.0, 1.0])
    log.write_text("job_id,submit_s,num_gpus,model,steps\na,0,1,nobody,80\n")
    with pytest.raises(InputError, match=r"does not know how fast model 'nobody' is on 1 GPU$"):
        read(log, profile=path)
    with pytest.raises(InputError, match="name a profile"):
        read(log)
    log.write_text("job_id,submit_s,num_gpus,duration_s,steps\na,0,1,,\n")
    with pytest.raises(InputError, match="line 2: steps and duration_s are both empty"):
        read(log)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cotenant_profile": 9}, "version 9"),
        ({"models": []}, "models must be an object"),
        ({"models": {"a": {"command": "x"}}}, "model 'a': command must be a list"),
        ({"models": {"a": {"on": {"h200": {"start_s": "x"}}}}}, "model 'a' on 'h200': start_s is 'x'"),
        ({"models": {"a": {"on": {"h200": {"start_s": -1}}}}}, "start_s is -1"),
        ({"models": {"a": {"on": {"h200": {"batches": [{"batch": 2}]}}}}}, "batches: needs 'batch'"),
        ({"pairs": [{"a": "x"}]}, "pair 1 needs gpu_type"),
    ],
)
def test_what_is_wrong_is_one_line(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"cotenant_profile": 1, **change}))
    with pytest.raises(InputError) as caught:
        load_profile(path, work_of("a"), ("h200",))
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
