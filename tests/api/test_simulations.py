"""Uploads: streamed with a limit, played by a child, kept for their caller."""

from __future__ import annotations

import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from cotenant.api import simulations

LOG = "job_id,submit_s,num_gpus,duration_s\n1,0,1,50\n2,5,2,60\n"
ASKED = {"cluster": "1x4", "policies": "fifo", "name": "mine.csv"}


def _begin(client: TestClient, content: str = LOG, **more: str) -> Any:
    return client.post("/v1/simulations", params={**ASKED, **more}, content=content)


def test_a_log_is_compared_by_a_child(user_a: TestClient, user_b: TestClient) -> None:
    made = _begin(user_a)
    assert made.status_code == 201
    path = f"/v1/simulations/{made.json()['id']}"
    assert _begin(user_a).status_code == 409, "one at a time"
    assert user_b.get(path).status_code == 404, "others' do not exist"
    assert user_a.get(f"{path}/report").status_code == 409
    end_s = time.monotonic() + 120
    while (told := user_a.get(path).json())["state"] == "running":
        assert time.monotonic() < end_s
        time.sleep(0.1)
    assert (told["state"], told["error"], told["runs"]) == ("done", "", 1)
    report = user_a.get(f"{path}/report")
    assert "1x4" in report.text
    assert report.headers["content-security-policy"].startswith(
        "sandbox allow-scripts allow-downloads; default-src 'none'"
    )
    assert [one["id"] for one in user_a.get("/v1/simulations").json()["simulations"]] == [made.json()["id"]]
    assert user_a.delete(path).status_code == 204
    assert user_a.get(path).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"policies": "./mine.py:Mine"}, {"policies": "nobody"}, {"policies": ""}, {"name": "../x"}, {"name": "a/b"},
        {"cluster": "/etc/passwd"}, {"cluster": "cluster.yaml"}, {"generate": "nothing-like"},
    ],
)  # fmt: skip
def test_what_is_not_played(user_a: TestClient, wrong: dict[str, str]) -> None:
    answer = _begin(user_a, **wrong)
    assert answer.status_code == 422, answer.text
    assert user_a.get("/v1/simulations").json()["simulations"] == []


def test_uploads_are_bounded(user_a: TestClient, viewer: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulations, "MOST_BYTES", 100)
    assert _begin(user_a, "x" * 101).status_code == 422
    assert _begin(user_a, "").status_code == 422
    assert _begin(viewer).status_code == 403
