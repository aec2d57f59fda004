"""What the routes do, how much they take, and what they say when they refuse."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fake_service import LIMITS, NOW, FakeService
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from cotenant.api.limits import MOST_BODY_BYTES
from cotenant.api.metrics import exposition
from cotenant.core.lifecycle import JobState
from cotenant.service.facade import TooMany


def _submit(client: TestClient, *jobs: dict[str, Any], key: str = "") -> Any:
    return client.post("/v1/jobs", json={"jobs": list(jobs)}, headers={"Idempotency-Key": key} if key else {})


def test_submit_and_look(admin: TestClient, service: FakeService) -> None:
    answer = _submit(admin, {"run": "python a.py", "gpus": "h200:2", "name": "one"}, {"run": "x", "array": "0-2"})
    assert (answer.status_code, answer.json()) == (201, {"ids": [["1"], ["2_0", "2_1", "2_2"]]})
    job = admin.get("/v1/jobs/1").json()
    assert (job["name"], job["gpus"], job["state"], job["metrics"]) == ("one", 2, "pending", {"loss": None})
    service.start("1")
    assert [item["id"] for item in admin.get("/v1/jobs?state=running").json()["jobs"]] == ["1"]
    assert len(admin.get("/v1/jobs?state=pending&state=running&limit=2").json()["jobs"]) == 2
    assert admin.get("/v1/jobs/1").json()["attempts"][0]["nodes"] == [["n0", [0, 1]]]
    assert admin.get("/v1/jobs/1/why").json()["cause"] == "waiting for capacity"


def test_changes_reach_the_service_in_seconds(admin: TestClient, service: FakeService) -> None:
    _submit(admin, {"run": "true"})
    answer = admin.patch("/v1/jobs/1", json={"deadline": "2h", "priority": -3, "max_runtime": 90, "name": "new"})
    assert (answer.status_code, answer.json()["priority"], answer.json()["name"]) == (200, -3, "new")
    assert service.set_calls == [{"deadline": 7200.0, "priority": -3, "max_runtime": 90.0, "name": "new"}]
    for wrong in (
        {},
        {"priority": "high"},
        {"gpus": 0},
        {"nodes": 3},
        {"deadline": "soon"},
        {"retries": -1},
        {"name": "a b"},
        [],
    ):
        assert admin.patch("/v1/jobs/1", json=wrong).status_code == 422


def test_hold_resume_cancel(admin: TestClient, service: FakeService) -> None:
    _submit(admin, {"run": "true"})
    assert admin.post("/v1/jobs/1/hold").json()["reason"] == "held"
    assert admin.post("/v1/jobs/1/resume").json()["reason"] != "held"
    assert admin.post("/v1/jobs/1/resume").status_code == 409
    assert admin.post("/v1/jobs/1/cancel").json()["state"] == "cancelled"
    assert admin.post("/v1/jobs/1/cancel").status_code == 200
    _submit(admin, {"run": "true"})
    service.move("2", JobState.SUCCEEDED)
    assert admin.post("/v1/jobs/2/cancel").status_code == 409


def test_nodes_policy_whatif_backup(admin: TestClient, service: FakeService) -> None:
    assert [node["state"] for node in admin.post("/v1/nodes/n1/drain").json()["nodes"]] == ["up", "draining"]
    assert [node["state"] for node in admin.delete("/v1/nodes/n1/drain").json()["nodes"]] == ["up", "up"]
    assert admin.post("/v1/nodes/n9/drain").status_code == 404
    assert admin.put("/v1/policy", json={"policy": "srtf"}).json() == admin.get("/v1/policy").json()
    assert admin.put("/v1/policy", json={"policy": "best"}).status_code == 422
    _submit(admin, {"run": "true"})
    assert admin.post("/v1/whatif", json={"policies": ["fifo", "fifo"]}).json()["jobs"] == [
        {"id": "1", "srtf": NOW + 60, "fifo": NOW + 42, "forecasts": LIMITS}
    ]
    for name in ("../../etc/x", "/tmp/x", ".hidden", "", "a/b"):
        assert admin.post("/v1/backup", json={"path": name}).status_code == 422
    assert [admin.post("/v1/backup", json={"path": "b.db"}).status_code for _ in range(2)] == [201, 409]


@pytest.mark.parametrize("policy", ["./mine.py:Mine", "mine.py:Mine", "/tmp/x.py:X", "a b", ""])
def test_whatif_loads_no_files(user_a: TestClient, policy: str) -> None:
    assert user_a.post("/v1/whatif", json={"policies": [policy]}).status_code == 422


def test_health(open_door: TestClient, service: FakeService) -> None:
    assert open_door.get("/healthz").json() == {"status": "ok"}
    assert open_door.get("/readyz").status_code == 200
    service.is_ready = False
    assert (open_door.get("/readyz").status_code, open_door.get("/healthz").status_code) == (503, 200)
    assert open_door.head("/readyz").status_code == 503


def test_metrics_are_prometheus(admin: TestClient) -> None:
    admin.get("/v1/jobs/no-such-job")
    admin.get("/some/strange/path")
    answer = admin.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert found["cotenant_decisions"].type == "counter"
    assert found["cotenant_queue_length"].samples[0].value == 3
    routes = {sample.labels["route"] for sample in found["cotenant_http_requests"].samples}
    assert routes <= {"/v1/jobs/{job}", "other", "/metrics"}


def test_metrics_keep_families_together() -> None:
    numbers = {
        'w_bucket{le="1"}': 1,
        "b": float("nan"),
        'w_bucket{le="+Inf"}': 2,
        "w_sum": 3,
        'b{x="1"}': 2,
        "w_count": 2,
    }
    assert exposition(numbers).splitlines() == [
        "# TYPE b gauge", "b NaN", 'b{x="1"} 2.0',
        "# TYPE w histogram", 'w_bucket{le="1"} 1.0', 'w_bucket{le="+Inf"} 2.0', "w_sum 3.0", "w_count 2.0",
    ]  # fmt: skip


def test_bodies_are_bounded(admin: TestClient, service: FakeService) -> None:
    big = b'{"jobs": [{"run": "' + b"x" * MOST_BODY_BYTES + b'"}]}'
    assert admin.post("/v1/jobs", content=big).status_code == 413
    assert admin.post("/v1/jobs", content=iter([big[:1000]] * 3000)).status_code == 413  # no Content-Length
    assert admin.request("GET", "/v1/jobs", content=big).status_code == 413
    assert admin.post("/v1/jobs", json={"jobs": [{"run": "true"}] * 1001}).status_code == 422
    assert admin.post("/v1/jobs", json={"jobs": [{"run": "true", "array": "0-59999"}] * 2}).status_code == 422
    assert service.submits == 0


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"jobs": []}', b'{"jobs": {}}', b'{"jobs": [1]}', b'{"jobs": [{}]}',
        b'{"jobs": [{"run": ""}]}', b'{"jobs": [{"run": "x"}], "more": 1}',
        b'{"jobs": [{"run": "x", "gpus": "\\u00b2"}]}',
        b'{"jobs": [{"run": "x", "gpus": NaN}]}', b'{"jobs": [{"run": "x", "cpus": 1e999}]}',
        b'{"jobs": [{"run": "\\ud800"}]}', b'{"jobs": [{"run": "a\\u0000b"}]}',
        b'{"jobs": [{"run": "x", "after": ["\\u0000"]}]}',
        b'{"jobs": [{"run": "x", "deadline": "' + b"9" * 400 + b'"}]}',
        b'{"jobs": [{"run": "x", "gpus": ' + b"9" * 5000 + b"}]}",
        b'{"jobs": [{"run": "x", "gpus": "' + b"9" * 5000 + b'"}]}', b"[" * 100_000,
        b'{"jobs": [{"run": "x", "cpus": ' + b"[" * 700 + b"]" * 700 + b"}]}",
        b'{"jobs": [{"run": "x", "name": "' + b"n" * 500_000 + b'"}]}',
    ],
)  # fmt: skip
def test_bad_bodies_are_one_short_line(admin: TestClient, body: bytes, service: FakeService) -> None:
    answer = admin.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert list(answer.json()) == ["error"]
    assert len(answer.json()["error"]) <= 400
    assert "\n" not in answer.json()["error"]
    assert service.submits == 0


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?sate=running", "/v1/nodes?x=1",
        "/v1/jobs?limit=0", "/v1/jobs?limit=x", "/v1/jobs?limit=99999999999999999999", "/v1/jobs?state=lost",
        "/v1/jobs/%00", "/v1/jobs/a%20b", "/v1/jobs/" + "a" * 200, "/v1/jobs/1/logs?stream=stdin",
        "/v1/jobs/1/logs?offset=x", "/v1/jobs/1/logs?attempt=-1", "/v1/events?after=-2", "/v1/events?wait=nan",
        "/v1/events?wait=1e9", "/v1/jobs/1/logs?follow=maybe", "/v1/jobs/%F0%9F%98%80",
    ],
)  # fmt: skip
def test_bad_paths_and_queries(admin: TestClient, path: str) -> None:
    _submit(admin, {"run": "true"})
    answer = admin.get(path)
    assert answer.status_code == 422, answer.text
    assert list(answer.json()) == ["error"]
    assert "pattern" not in answer.text, "nobody is shown a regular expression"


def test_several_jobs_at_once(admin: TestClient, user_a: TestClient, service: FakeService) -> None:
    _submit(admin, {"run": "true"}, {"run": "true"})
    held = admin.post("/v1/changes/hold", json={"jobs": ["1", "9"]}).json()["jobs"]
    assert [(item["id"], bool(item["error"]), item["job"] and item["job"]["reason"]) for item in held] == [
        ("1", False, "held"), ("9", True, None),
    ]  # fmt: skip
    assert admin.post("/v1/changes/set", json={"jobs": ["2"], "changes": {"deadline": "2h"}}).status_code == 200
    assert service.set_calls == [{"deadline": 7200.0}]
    assert len(admin.post("/v1/changes/cancel", json={"all": True}).json()["jobs"]) == 2
    assert admin.post("/v1/resubmit", json={"jobs": ["1"], "changes": {"gpus": 2}}).json() == {"ids": [["3"]]}
    for verb, wrong in (
        ("cancel", {}), ("set", {"jobs": ["1"]}), ("explode", {"jobs": ["1"]}), ("cancel", {"jobs": ["a\nb"]}),
        ("cancel", {"states": ["asleep"], "all": True}),
    ):  # fmt: skip
        assert admin.post(f"/v1/changes/{verb}", json=wrong).status_code == 422, (verb, wrong)
    assert user_a.post("/v1/resubmit", json={"jobs": ["1"], "changes": {"tenant": "b"}}).status_code == 403
    assert admin.get("/v1/jobs?limit=1").json()["left_out"] == 2


def test_windows(admin: TestClient, user_a: TestClient) -> None:
    body = {"kind": "maintenance", "nodes": ["n0"], "from_s": NOW, "to_s": NOW + 60}
    made = admin.post("/v1/windows", json=body)
    assert (made.status_code, made.json()["id"], made.json()["nodes"]) == (201, "w1", ["n0"])
    assert user_a.get("/v1/windows").json()["windows"] == [made.json()]
    assert user_a.post("/v1/windows", json=body).status_code == 403
    assert admin.post("/v1/windows", json={**body, "kind": "party"}).status_code == 422
    assert admin.delete("/v1/windows/w1").status_code == 204
    assert admin.delete("/v1/windows/w1").status_code == 404


def test_unknown_paths_and_methods_with_a_token(admin: TestClient) -> None:
    assert admin.get("/v1/nothing").json() == {"error": "no such path"}
    answer = admin.put("/v1/jobs")
    assert (answer.status_code, answer.json()) == (405, {"error": "no such method for this path"})
    assert answer.headers["allow"]
    assert admin.get("/openapi.json").status_code == 200
    assert admin.get("/docs").status_code == 404, "it would fetch scripts from elsewhere"


def test_a_full_disk_is_503(admin: TestClient, service: FakeService) -> None:
    service.full = True
    answer = _submit(admin, {"run": "true"})
    assert (answer.status_code, answer.json()) == (503, {"error": "the disk is full: nothing was taken"})


def test_a_repeated_key_gives_the_first_answer(admin: TestClient, user_a: TestClient, service: FakeService) -> None:
    first = _submit(admin, {"run": "true"}, key="k")
    assert _submit(admin, {"run": "true"}, key="k").json() == first.json()
    assert service.submits == 1
    assert _submit(admin, {"run": "false"}, key="k").status_code == 409
    assert _submit(user_a, {"run": "true"}, key="k").json() != first.json()
    assert _submit(admin, {"run": "true"}, key="a b").status_code == 422
    service.full = True
    assert _submit(admin, {"run": "true"}, key="later").status_code == 503
    service.full = False
    assert _submit(admin, {"run": "true"}, key="later").status_code == 201


def test_a_key_used_at_the_same_time_submits_once(admin: TestClient, service: FakeService) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: _submit(admin, {"run": "true"}, key="same").json(), range(8)))
    assert answers == [{"ids": [["1"]]}] * 8
    assert service.submits == 1


def test_the_document_names_every_refusal(admin: TestClient) -> None:
    document = admin.get("/openapi.json").json()
    assert document["security"] == [{"bearer": []}]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if path in ("/healthz", "/readyz"):
                assert operation["security"] == []
            else:
                assert {"401", "403", "413", "422", "503"} <= operation["responses"].keys()
    assert "HTTPValidationError" not in json.dumps(document)


def test_tenants_are_added_changed_and_removed(
    admin: TestClient, user_a: TestClient, user_b: TestClient, service: FakeService
) -> None:
    made = admin.post("/v1/tenants", json={"name": "a", "fields": {"guaranteed": 4, "admins": ["user-a"]}})
    assert (made.status_code, made.json()["done"]) == (201, "a: added")
    assert admin.post("/v1/tenants", json={"name": "a"}).status_code == 409
    assert admin.post("/v1/tenants", json={"name": "b", "fields": {"guaranteed": 5}}).status_code == 422
    assert user_a.post("/v1/tenants", json={"name": "a1", "parent": "a"}).status_code == 201
    changed = user_a.patch("/v1/tenants/a1", json={"fields": {"weight": 2.5, "limits": {"gpus": 2}}}).json()
    assert changed["done"] == "a1: weight (default) -> 2.5, limits (default) -> {'gpus': 2}"
    for who, name, fields in ((user_a, "a", {"guaranteed": 5}), (user_b, "a1", {"weight": 1.0})):
        assert who.patch(f"/v1/tenants/{name}", json={"fields": fields}).status_code == 403
    assert user_b.delete("/v1/tenants/a1").status_code == 403
    assert admin.delete("/v1/tenants/a").status_code == 422  # it has children
    group = {"count": 1, "gpus_per_node": 4, "dedicated": ["a"], "labels": [["rack", "a3"]], "names": ["n9"]}
    taken = admin.put("/v1/tenants", json={"tenants": {"a": {}}, "groups": [group]}).json()
    assert taken["unmatched"] == ["groups[0]: 0 of 1 nodes named n9 are there"]
    assert admin.patch("/v1/tenants", json={"half_life": "7d"}).json()["fair_share"]["half_life_s"] == 7 * 86400
    found = user_b.get("/v1/tenants").json()
    assert ([row["name"] for row in found["tenants"]], found["changed_by"]) == (["a"], "admin")
    assert [who.delete("/v1/tenants/a").status_code for who in (user_b, admin, admin)] == [403, 200, 404]


def test_who_has_had_his_share_is_told_when_to_try_again(
    admin: TestClient, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise TooMany("a user of tenant 'a' may submit 5 jobs an hour", 12.3)

    monkeypatch.setattr(service, "submit", refuse)
    answer = _submit(admin, {"run": "true"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "13")
    assert answer.json() == {"error": "a user of tenant 'a' may submit 5 jobs an hour"}
