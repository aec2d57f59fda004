from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cotenant.core.errors import InputError
from cotenant.core.workload import Status
from cotenant.workload.readers import FORMATS, read


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


OWN = """\
job_id,submit_s,num_gpus,duration_s,vc,user,model,status,cpus,mem_gib,deadline_s,priority,gpu_type,nodes,attempts
a,0,1,10,x,u1,vgg16,passed,4,,100,-3,,,
b,5,8,20.5,y,u2,,killed,,32,,7,h200,2,3;4.5
c,5,2,0,x,u1,,,,,,,,0,
"""


def test_own_format_with_every_optional_column(tmp_path: Path) -> None:
    work = read(write(tmp_path, "t.csv", OWN))
    assert work.job_id.tolist() == ["a", "b", "c"]
    assert work.submit_s.tolist() == [0, 5, 5]
    assert work.gpus.tolist() == [1, 8, 2]
    assert work.duration_s.tolist() == [10, 20.5, 0]
    assert [work.tenant.names[c] for c in work.tenant.code] == ["x", "y", "x"]
    assert [work.model.names[c] for c in work.model.code] == ["vgg16", "", ""]
    assert work.status.tolist() == [Status.PASSED, Status.KILLED, Status.UNKNOWN]
    np.testing.assert_equal(work.cpus, [4, np.nan, np.nan])
    np.testing.assert_equal(work.mem_gib, [np.nan, 32, np.nan])
    np.testing.assert_equal(work.deadline_s, [100, np.nan, np.nan])
    assert work.priority.tolist() == [-3, 7, 0]
    assert [work.gpu_type.names[c] for c in work.gpu_type.code] == ["", "h200", ""]
    assert work.nodes.tolist() == [0, 2, 0]
    assert work.attempts == {1: (3.0, 4.5)}
    assert work.notes == ()


def test_gzip_parquet_bom_crlf_and_blank_lines_read_alike(tmp_path: Path) -> None:
    plain = read(write(tmp_path, "t.csv", OWN))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(OWN.encode()))
    (tmp_path / "crlf.csv").write_bytes(b"\xef\xbb\xbf" + OWN.replace("\n", "\r\n").encode())
    (tmp_path / "blank.csv").write_bytes(b"\n" + OWN.replace("\nb", "\n\nb").encode())
    pl.read_csv(tmp_path / "t.csv").write_parquet(tmp_path / "t.parquet")
    for name in ("t.csv.gz", "crlf.csv", "blank.csv", "t.parquet"):
        other = read(tmp_path / name)
        np.testing.assert_array_equal(other.job_id, plain.job_id)
        np.testing.assert_array_equal(other.duration_s, plain.duration_s)
        np.testing.assert_array_equal(other.status, plain.status)


def test_notes_count_what_was_left_out_ignored_and_sorted(tmp_path: Path) -> None:
    text = "job_id,submit_s,num_gpus,duration_s,mood,colour\na,9,1,1,,\nb,3,0,,,\nc,3,2,5,,\n"
    work = read(write(tmp_path, "t.csv", text))
    assert work.job_id.tolist() == ["c", "a"]
    assert work.notes == (
        "t.csv: columns ignored: mood, colour",
        "t.csv: 1 row left out (0 GPUs asked)",
        "t.csv: rows were not sorted by submit time; sorted",
    )


def test_ids_may_hold_blank_lines_and_separators(tmp_path: Path) -> None:
    text = 'job_id,submit_s,num_gpus,duration_s\n"a\n\n,b",0,1,1\n\n"c ""d""",1,1,1\n'
    assert read(write(tmp_path, "t.csv", text)).job_id.tolist() == ["a\n\n,b", 'c "d"']


def test_equal_submit_times_keep_row_order(tmp_path: Path) -> None:
    text = "job_id,submit_s,num_gpus,duration_s\nz,5,1,1\ny,5,1,1\nx,1,1,1\n"
    assert read(write(tmp_path, "t.csv", text)).job_id.tolist() == ["x", "z", "y"]


def test_philly_json(tmp_path: Path) -> None:
    def attempt(start: str, end: str, gpus: int) -> dict[str, object]:
        return {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": ["gpu0"] * gpus}]}

    day = "2017-10-09"
    jobs = [
        {
            "status": "Pass",
            "vc": "6214e9",
            "jobid": "j1",
            "user": "u1",
            "submitted_time": f"{day} 07:00:30",
            "attempts": [
                attempt(f"{day} 07:01:00", f"{day} 07:02:00", 2),
                attempt(f"{day} 07:03:00", f"{day} 07:08:00", 2),
            ],
        },
        {
            "status": "Killed",
            "vc": "ee9e8c",
            "jobid": "j0",
            "user": "u2",
            "submitted_time": f"{day} 07:00:00",
            "attempts": [attempt(f"{day} 07:00:10", f"{day} 07:00:20", 1)],
        },
        {
            "status": "Failed",
            "vc": "x",
            "jobid": "j2",
            "user": "u2",
            "submitted_time": f"{day} 08:00:00",
            "attempts": [attempt(f"{day} 08:00:10", "None", 1)],
        },
    ]
    work = read(write(tmp_path, "cluster_job_log", json.dumps(jobs)))
    assert work.job_id.tolist() == ["j0", "j1"]
    assert work.submit_s.tolist() == [0, 30]
    assert work.gpus.tolist() == [1, 2]
    assert work.duration_s.tolist() == [10, 360]
    assert work.attempts == {1: (60.0,)}
    assert work.status.tolist() == [Status.KILLED, Status.PASSED]
    assert any("1 jobs left out (no attempt ended)" in note for note in work.notes)
    jobs[0].pop("submitted_time")
    with pytest.raises(InputError, match=r"job 1: field 'submitted_time' is missing"):
        read(write(tmp_path, "broken", json.dumps(jobs)))


def test_helios(tmp_path: Path) -> None:
    text = (
        "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,vc\n"
        "7,u1,8,32,1,COMPLETED,2020-04-01 00:00:10,,,100,0,vcA\n"
        "8,u1,0,4,1,FAILED,2020-04-01 00:00:11,,,1,0,vcA\n"
        "9,u2,1,4,1,CANCELLED,2020-04-02 00:00:10,,,50,0,vcB\n"
    )
    work = read(write(tmp_path, "cluster_log.csv", text))
    assert work.submit_s.tolist() == [0, 86400]
    assert work.cpus.tolist() == [32, 4]
    assert work.status.tolist() == [Status.PASSED, Status.KILLED]
    assert work.tenant.names == ("vcA", "vcB")
    assert work.notes == ("cluster_log.csv: 1 row left out (0 GPUs asked)",)


TASKS = (
    "j1,worker,4,Terminated,100,160,600,29.3,50,T4\n"
    "j1,ps,1,Terminated,100,160,200,10,,MISC\n"
    "j2,worker,2,Failed,120,130,1200,60,200,V100\n"
    "j3,worker,2,Running,140,,1200,60,100,V100\n"
)
TASK_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"


@pytest.mark.parametrize("header", ["", TASK_HEADER])
def test_pai_task_table_with_and_without_header(tmp_path: Path, header: str) -> None:
    work = read(write(tmp_path, "pai_task_table.csv", header + TASKS))
    assert work.job_id.tolist() == ["j1/worker", "j2/worker"]
    assert work.gpus.tolist() == [4, 4]
    assert work.duration_s.tolist() == [60, 10]
    assert work.cpus.tolist() == [24, 24]
    assert work.extra["gpu_share"].tolist() == [0.5, 2.0]
    assert work.status.tolist() == [Status.PASSED, Status.FAILED]


def test_pai_job_table_needs_its_task_table(tmp_path: Path) -> None:
    jobs = write(tmp_path, "pai_job_table.csv", "j1,i1,alice,Terminated,100,160\nj2,i2,bob,Failed,120,130\n")
    with pytest.raises(InputError, match=r"pai_job_table.csv: the PAI job table has no GPUs"):
        read(jobs)
    write(tmp_path, "pai_task_table.csv", TASKS)
    work = read(jobs)
    assert [work.user.names[c] for c in work.user.code] == ["alice", "bob"]


def test_openb_pods(tmp_path: Path) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
        "creation_time,deletion_time,scheduled_time\n"
        "p0,12000,16384,1,460,,LS,Running,5,105,10\n"
        "p1,6000,12288,0,0,,LS,Running,6,105,10\n"
        "p2,6000,12288,2,1000,,BE,Pending,7,105,\n"
        "p3,6000,12288,2,1000,,BE,Succeeded,8,108,8\n"
    )
    work = read(write(tmp_path, "pods.csv", text))
    assert work.job_id.tolist() == ["p0", "p3"]
    assert work.duration_s.tolist() == [95, 100]
    assert work.cpus.tolist() == [12, 6]
    assert work.mem_gib.tolist() == [16, 12]
    assert work.extra["gpu_share"].tolist() == [0.46, 1.0]


TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"


def test_tiresias_muri_and_chronus_differ_in_units(tmp_path: Path) -> None:
    seconds = read(write(tmp_path, "t.csv", f"{TIRESIAS}\n0,4,60,10,vgg19,120,5\n"))
    millis = read(
        write(tmp_path, "m.csv", f"{TIRESIAS},resource_time_0,priority\n0,4,60000,10,vgg19,120000,5000,250,1\n")
    )
    minutes = read(
        write(
            tmp_path,
            "c.csv",
            f"{TIRESIAS},user,expect_time_list,expect_value_list,best_effort,job_type\n"
            "0,4,1,10,vgg19,2,5,vcA,3-4,10-8,0,soft\n1,4,1,10,vgg19,2,5,vcB,1,10,1,best\n",
        )
    )
    for work in (seconds, millis, minutes):
        assert work.submit_s[0] == 60
        assert work.duration_s[0] == 120
        assert work.gpus[0] == 4
        assert work.model.names[work.model.code[0]] == "vgg19"
        assert work.extra["iterations"][0] == 10
    assert millis.extra["resource_time_0_s"][0] == 0.25
    np.testing.assert_equal(minutes.deadline_s, [60 + 180, np.nan])
    assert minutes.extra["expect_time_s"][0] == (180.0, 240.0)
    assert minutes.extra["job_type"].tolist() == ["soft", "best"]
    assert minutes.tenant.names == ("vcA", "vcB")


def test_synergy_iterations_become_seconds(tmp_path: Path) -> None:
    work = read(write(tmp_path, "s.csv", "0,alexnet,1050,1000,1\n1,gnmt,2212,1000,8\n"))
    np.testing.assert_allclose(work.duration_s, [600, 120])
    with pytest.raises(InputError, match=r"s2.csv line 2: unknown Synergy model 'alexnets': did you mean 'alexnet'"):
        read(write(tmp_path, "s2.csv", "0,alexnet,1050,1000,1\n1,alexnets,2212,1000,8\n"))


def test_gavel_needs_throughputs(tmp_path: Path) -> None:
    line = "LM (batch size 5)\tpython3 x.py %s\tlm\t--steps\t1\t1000\t2\t1\t-1.0\t{}\n"
    trace = write(tmp_path, "g.trace", line.format(30) + line.format(60))
    with pytest.raises(InputError, match=r"g.trace: a Gavel trace counts steps.*--profile"):
        read(trace)
    rates = {"v100": {"('LM (batch size 5)', 2)": {"null": 4.0}}, "k80": {}}
    work = read(trace, profile=write(tmp_path, "rates.json", json.dumps(rates)))
    assert work.duration_s.tolist() == [250, 250]
    assert work.submit_s.tolist() == [30, 60]
    assert work.extra["total_steps"].tolist() == [1000, 1000]
    rates["v100"] = {}
    with pytest.raises(InputError, match=r"g.trace line 1: .*no v100 throughput for 'LM \(batch size 5\)' on 2 GPUs"):
        read(trace, profile=write(tmp_path, "rates.json", json.dumps(rates)))


GOOD = "job_id,submit_s,num_gpus,duration_s\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job_id,submit_s,num_gpus\na,0,1\n", r"line 1: column is missing: 'duration_s' .*cotenant format"),
        (GOOD + "a,0,1,5\nb,1,1,-5\n", r"line 3: duration_s is -5, but must be at least 0"),
        (GOOD + "a,0,1,5\n\nb,1,1,-5\n", r"line 4: duration_s is -5"),
        (GOOD + "a,0,1,nan\n", r"line 2: duration_s is 'nan', not a number"),
        (GOOD + "a,0,1,inf\n", r"line 2: duration_s is 'inf', not a number"),
        (GOOD + "a,0,1,\n", r"line 2: duration_s is empty"),
        (GOOD + "a,0,1\n", r"line 2: duration_s is empty"),
        (GOOD + "a,noon,1,5\n", r"line 2: submit_s is 'noon', not a number"),
        (GOOD + "a,0,1.5,5\n", r"line 2: num_gpus is 1.5, not a whole number"),
        (GOOD + "a,0,-1,5\n", r"line 2: num_gpus is -1, but must be at least 0"),
        (GOOD + "a,0,1,5\nb,0,1,5\na,0,1,5\n", r"line 4: job_id 'a' was used before, in line 2"),
        (GOOD + ",0,1,5\n", r"line 2: job_id is empty"),
        (GOOD + "a,0,1,5,6\n", r"line 2: 5 cells, but the first line has 4"),
        (GOOD + "a,0,0,5\n", r"no job is left; all 1 rows are left out .0 GPUs asked."),
        (GOOD, r"has a header line but no jobs"),
        ("", r"is empty; it must begin with a header"),
        ("  \n\n", r"is empty"),
        ("a,b,c\n1,2,3\n", r"line 1: unknown format"),
        (GOOD.strip() + ",status\na,0,1,5,passd\n", r"line 2: unknown status 'passd': did you mean 'passed'"),
        (GOOD.strip() + ",deadlines\na,0,1,5,3600\n", r"line 2: deadlines is '3600', not SECONDS:VALUE joined by ';'"),
        (GOOD.strip() + ",deadlines\na,0,1,5,1h:1\n", r"line 2: deadlines is '1h:1', not SECONDS:VALUE"),
        (GOOD.strip() + ",deadlines\na,0,1,5,9:nan\n", r"line 2: deadlines is '9:nan', not SECONDS:VALUE"),
        (GOOD.strip() + ",deadlines\na,0,1,5,9:2;9:1\n", r"line 2: .*: the seconds after submission must rise"),
        (GOOD.strip() + ",deadlines\na,0,1,5,-9:2\n", r"line 2: .*: the seconds after submission must rise"),
        (GOOD.strip() + ",deadlines\na,0,1,5,9:1;10:2\n", r"line 2: .*: values must be positive and may not rise"),
        (GOOD.strip() + ",deadlines\na,0,1,5,9:0\n", r"line 2: .*: values must be positive"),
        (GOOD.strip() + ",deadline_s,deadlines\na,0,1,5,7,9:1\n", r"line 2: deadline_s and deadlines are both given"),
        (GOOD.strip() + ",min_gpus\na,0,2,5,3\n", r"line 2: min_gpus is 3, more than num_gpus, 2"),
        (GOOD.strip() + ",max_gpus\na,0,4,5,2\n", r"line 2: max_gpus is 2, less than num_gpus, 4"),
        (GOOD.strip() + ",max_gpus\na,0,4,5,4.5\n", r"line 2: max_gpus is 4.5, not a whole number"),
        (GOOD.strip() + ",min_gpus\na,0,4,5,-1\n", r"line 2: min_gpus is -1, but must be at least 0"),
        (GOOD.strip() + ",attempts\na,0,1,5,1;x\n", r"line 2: attempts is '1;x'"),
        (GOOD.strip() + ",attempts\na,0,1,5,3;4\n", r"line 2: attempts '3;4' must be part of duration_s"),
        (GOOD.strip() + ",priority\na,0,1,5,0.5\n", r"line 2: priority is 0.5, not a whole number"),
        (GOOD.strip() + ",nodes\na,0,4,5,3\n", r"line 2: nodes is 3, which does not divide num_gpus, 4"),
        (GOOD.strip() + ",nodes\na,0,4,5,-1\n", r"line 2: nodes is -1, but must be at least 0"),
        (GOOD.replace("job_id", "job_id,job_id"), r"line 1: column 'job_id' appears twice"),
        ("[{", r"broken JSON"),
    ],
)
def test_bad_input_is_one_line_with_file_and_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, "bad.csv", text)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parquet_errors_name_the_row(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame(
        {"job_id": ["a", "b"], "submit_s": [0, 1], "num_gpus": [1, 2], "duration_s": [1.0, -2.0]}
    ).write_parquet(path)
    with pytest.raises(InputError, match=r"t.parquet row 2: duration_s is -2"):
        read(path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(InputError, match=r"t.parquet: parquet data is truncated or corrupt"):
        read(path)


def test_truncated_gzip_missing_file_directory_and_unknown_format(tmp_path: Path) -> None:
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(OWN.encode())[:-12])
    with pytest.raises(InputError, match=r"t.csv.gz: gzip data is truncated or corrupt"):
        read(packed)
    with pytest.raises(InputError, match=r"nowhere.csv: no such file"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r"is a directory"):
        read(tmp_path)
    with pytest.raises(InputError, match=r"unknown trace format 'tiresia': did you mean 'tiresias'"):
        read(packed, format="tiresia")
    with pytest.raises(InputError, match=r"columns are missing: 'gpu_num', 'submit_time', 'duration'"):
        read(write(tmp_path, "own.csv", OWN), format="helios")


def test_every_format_is_listed_with_a_line() -> None:
    assert {"cotenant", "philly", "helios", "pai-task", "muri", "chronus", "synergy", "gavel"} <= set(FORMATS)
    assert all(FORMATS.values())
