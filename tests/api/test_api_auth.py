"""Who may do what, over every route and method of the OpenAPI document and over some that are in none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_service import ADMIN, FakeService
from starlette.testclient import TestClient

from cotenant.api import make_app

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
OPEN = {("GET", "/healthz"), ("HEAD", "/healthz"), ("GET", "/readyz"), ("HEAD", "/readyz")}
SESSION = "/v1/session"  # anybody may ask who he is, and try to sign in: see test_sessions.py
PROVING = {("GET", "/v1/proof"), ("HEAD", "/v1/proof"), ("GET", "/v1/signon"), ("HEAD", "/v1/signon")}  # tell no secret
STRANGE = (
    "/metrics", "/docs", "/openapi.json", "/v1", "/v1/", "/v2/jobs", "/v1/jobs/", "/healthz/",
    "/healthz/x", "/HEALTHZ", "/readyz%2f..%2fmetrics", "/v1/jobs/../healthz", "/redoc", "/v1/unknown",
    "/docs/oauth2-redirect",
)  # fmt: skip
BODIES = {
    ("post", "/v1/jobs"): {"jobs": [{"run": "true"}]},
    ("patch", "/v1/jobs/{job}"): {"priority": 1},
    ("put", "/v1/policy"): {"policy": "srtf"},
    ("post", "/v1/whatif"): {"policies": ["srtf"]},
    ("post", "/v1/tokens"): {"role": "viewer"},
    ("post", "/v1/backup"): {"path": "copy.db"},
    ("patch", "/v1/tenants"): {"half_life": "7d"},
    ("put", "/v1/tenants"): {"tenants": {"a": {}}},
    ("post", "/v1/jobs/{job}/channels"): {"kind": "attach"},
}
ADMIN_ONLY = {
    ("get", "/v1/tokens"), ("post", "/v1/tokens"), ("delete", "/v1/tokens/{token}"), ("put", "/v1/policy"),
    ("post", "/v1/nodes/{name}/drain"), ("delete", "/v1/nodes/{name}/drain"), ("post", "/v1/backup"),
    ("get", "/v1/audit"), ("put", "/v1/tenants"), ("patch", "/v1/tenants"),
}  # fmt: skip


def _operations() -> Iterator[tuple[str, str]]:
    document = make_app(FakeService(None)).openapi()  # type: ignore[arg-type]
    for path, methods in document["paths"].items():
        for method in methods:
            yield method, path


OPERATIONS = list(_operations())


def _url(path: str) -> str:
    return (
        path.replace("{job}", "1")
        .replace("{name}", "n0")
        .replace("{token}", "t1")
        .replace("{question}", "0" * 32)
        .replace("{channel}", "0" * 32)
    )


def test_the_document_has_every_route() -> None:
    assert len(OPERATIONS) == 67
    assert {path for _, path in OPERATIONS} >= {"/metrics", "/healthz", "/readyz", "/v1/jobs/{job}/logs"}


@pytest.mark.parametrize("path", [*dict.fromkeys(_url(path) for _, path in OPERATIONS), *STRANGE])
def test_without_a_token_everything_is_401(open_door: TestClient, path: str) -> None:
    for method in METHODS:
        if path == SESSION and method in ("GET", "HEAD", "POST"):
            continue
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {ADMIN}"}):
            answer = open_door.request(method, path, headers=headers)
            if (method, path) in OPEN:
                assert answer.status_code == 200
                continue
            if (method, path) in PROVING:
                assert answer.status_code in (404, 405, 422)
                continue
            assert answer.status_code == 401, (method, path, headers)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert method == "HEAD" or list(answer.json()) == ["error"]


def test_a_token_in_the_query_opens_nothing(open_door: TestClient) -> None:
    assert open_door.get("/v1/jobs", params={"token": ADMIN, "access_token": ADMIN}).status_code == 401


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_a_viewer_only_reads(viewer: TestClient, service: FakeService, method: str, path: str) -> None:
    if method != "get" and not path.startswith(SESSION):
        answer = viewer.request(method, _url(path), json=BODIES.get((method, path)))
        assert (answer.status_code, list(answer.json())) == (403, ["error"])
        assert (service.submits, service.live_policy, service.backups, len(service.secrets)) == (0, "fifo", [], 4)


def test_a_viewer_reads_without_the_values_of_environments(
    viewer: TestClient, user_a: TestClient, service: FakeService
) -> None:
    user_a.post("/v1/jobs", json={"jobs": [{"run": "true", "env": {"KEY": "hush"}}]})
    for path in ("/v1/jobs/1", "/v1/events", "/v1/jobs/1/events"):
        assert viewer.get(path).status_code == 200
        assert "hush" not in viewer.get(path).text
        assert "KEY" in viewer.get(path).text
    assert user_a.get("/v1/jobs/1").json()["spec"]["env"] == {"KEY": "hush"}


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_only_an_admin_may(user_a: TestClient, method: str, path: str) -> None:
    answer_is_403 = (method, path) in ADMIN_ONLY and user_a.request(
        method, _url(path), json=BODIES.get((method, path))
    ).status_code == 403
    assert answer_is_403 == ((method, path) in ADMIN_ONLY)


@pytest.mark.parametrize(("method", "path"), [pair for pair in OPERATIONS if "{job}" in pair[1]])
def test_a_job_of_another_tenant_does_not_exist(user_a: TestClient, user_b: TestClient, method: str, path: str) -> None:
    assert user_b.post("/v1/jobs", json={"jobs": [{"run": "true"}]}).json() == {"ids": [["1"]]}
    theirs = user_a.request(method, _url(path), json=BODIES.get((method, path)))
    nobodys = user_a.request(method, _url(path).replace("/1", "/99", 1), json=BODIES.get((method, path)))
    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.json()["error"].replace("'1'", "'99'") == nobodys.json()["error"]


def test_listings_hold_only_the_own_tenant(user_a: TestClient, user_b: TestClient, admin: TestClient) -> None:
    user_a.post("/v1/jobs", json={"jobs": [{"run": "true"}]})
    user_b.post("/v1/jobs", json={"jobs": [{"run": "true"}]})
    assert [job["id"] for job in user_a.get("/v1/jobs").json()["jobs"]] == ["1"]
    assert [event["job"] for event in user_b.get("/v1/events").json()["events"]] == ["2"]
    assert user_b.get("/v1/events/stream", params={"job": "1"}).status_code == 404
    assert len(admin.get("/v1/jobs").json()["jobs"]) == 2


def test_a_user_submits_for_his_own_tenant_only(user_a: TestClient, service: FakeService) -> None:
    assert user_a.post("/v1/jobs", json={"jobs": [{"run": "true", "tenant": "b"}]}).status_code == 403
    assert user_a.post("/v1/jobs", json={"jobs": [{"run": "true", "tenant": "a"}]}).status_code == 201
    assert list(service.infos) == ["1"]


def test_a_revoked_token_is_useless_at_once(admin: TestClient, user_a: TestClient) -> None:
    assert user_a.get("/v1/jobs").status_code == 200
    assert admin.delete("/v1/tokens/t2").status_code == 204
    assert user_a.get("/v1/jobs").status_code == 401


def test_a_secret_is_shown_once(admin: TestClient) -> None:
    made = admin.post("/v1/tokens", json={"role": "user", "tenant": "c", "name": "carla"})
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    assert made.json()["secret"] not in admin.get("/v1/tokens").text
    assert admin.get("/v1/tokens").json()["tokens"][-1]["name"] == "carla"


@pytest.mark.parametrize(
    ("body", "word"),
    [({"role": "user"}, "tenant"), ({"role": "admin", "tenant": "a"}, "tenant"), ({"role": "king"}, "role")],
)
def test_tokens_that_make_no_sense(admin: TestClient, body: dict[str, str], word: str) -> None:
    answer = admin.post("/v1/tokens", json=body)
    assert answer.status_code == 422
    assert word in answer.json()["error"]


def test_web_sockets_are_closed(admin: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), admin.websocket_connect("/v1/events/stream"):
        pass


def test_no_secret_is_logged(
    admin: TestClient, open_door: TestClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    service.jobs = lambda *_, **__: 1 / 0  # type: ignore[assignment, method-assign]
    assert admin.get("/v1/jobs").status_code == 500
    assert admin.get("/v1/jobs").json() == {"error": "internal error: see the service's log"}
    open_door.get("/v1/jobs", headers={"Authorization": "Bearer wrong-secret"})
    assert ADMIN not in caplog.text
    assert "wrong-secret" not in caplog.text
