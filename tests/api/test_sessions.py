"""Browsers: the page and its files, signing in by token or link, and whose writes a cookie is good for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fake_service import ADMIN, USER_A, VIEWER, FakeService
from starlette.testclient import TestClient

from cotenant.api import make_app, window
from cotenant.api.sessions import BrowserSession, Sessions
from cotenant.service.facade import Caller, Role

OURS = {"X-Cotenant-Window": "1"}


def _sign_in(door: TestClient, secret: str, **more: str) -> TestClient:
    answer = door.post("/v1/session", json={"token": secret}, headers={**OURS, **more})
    assert answer.status_code == 200, answer.text
    return door


def test_the_page_and_its_files_are_open_and_say_what_they_may_load(open_door: TestClient, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>built</title>")
    (tmp_path / "assets" / "index-1a2b.js").write_text("1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "PAGE", window.PageFiles(tmp_path / "none"))
        assert "make web" in open_door.get("/").text
        patch.setattr(window, "PAGE", window.PageFiles(tmp_path))
        page = open_door.get("/")
        assert "built" in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert open_door.get("/assets/index-1a2b.js").status_code == 200
        for wrong in ("/assets/none.js", "/assets/..%2findex.html", "/assets/../index.html", "/assets/"):
            assert open_door.get(wrong).status_code in (401, 404, 422), wrong
    assert open_door.post("/").status_code == 401


def test_a_token_becomes_a_cookie_that_scripts_cannot_read(open_door: TestClient) -> None:
    assert open_door.get("/v1/session").json() == {"user": None}
    answer = open_door.post("/v1/session", json={"token": ADMIN}, headers=OURS)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert ADMIN not in cookie
    who = open_door.get("/v1/session").json()["user"]
    assert who["role"] == "admin"
    assert open_door.get("/v1/tokens").status_code == 200
    assert open_door.delete("/v1/session", headers=OURS).status_code == 204
    assert open_door.get("/v1/tokens").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**OURS, "Origin": "http://evil.example"},
        {**OURS, "Sec-Fetch-Site": "cross-site"},
        {**OURS, "Sec-Fetch-Site": "same-site"},
    ],
)
def test_writes_by_cookie_must_come_from_the_page(open_door: TestClient, headers: dict[str, str]) -> None:
    _sign_in(open_door, ADMIN)
    assert open_door.put("/v1/policy", json={"policy": "srtf"}, headers=headers).status_code == 403
    assert open_door.post("/v1/session", json={"token": ADMIN}, headers=headers).status_code == 403
    ours = {**OURS, "Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
    assert open_door.put("/v1/policy", json={"policy": "srtf"}, headers=ours).status_code == 200


def test_another_page_of_this_host_cannot_read_by_cookie(open_door: TestClient) -> None:
    _sign_in(open_door, ADMIN)
    assert open_door.get("/v1/jobs", headers={"Sec-Fetch-Site": "same-site"}).status_code == 403
    assert open_door.get("/v1/jobs", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_token_in_the_header_needs_no_header_of_the_page(admin: TestClient) -> None:
    assert admin.put("/v1/policy", json={"policy": "srtf"}).status_code == 200


def test_a_revoked_token_ends_its_sessions(open_door: TestClient, service: FakeService) -> None:
    _sign_in(open_door, USER_A)
    assert open_door.get("/v1/jobs").status_code == 200
    token = next(info.id for info, _ in service.secrets.values() if info.role is Role.USER)
    service.revoke_token(Caller("root", Role.ADMIN), token)
    assert open_door.get("/v1/jobs").status_code == 401


def test_a_viewer_signs_in_and_out_and_writes_nothing(open_door: TestClient) -> None:
    _sign_in(open_door, VIEWER)
    assert open_door.post("/v1/jobs", json={"jobs": [{"run": "true"}]}, headers=OURS).status_code == 403
    assert open_door.delete("/v1/session", headers=OURS).status_code == 204


def test_a_link_signs_in_once(open_door: TestClient, user_a: TestClient) -> None:
    code = user_a.post("/v1/session/link").json()["code"]
    assert open_door.post("/v1/session", json={"code": code}, headers=OURS).json()["tenant"] == "a"
    assert open_door.post("/v1/session/link", headers=OURS).status_code == 403, "a browser makes no links"
    assert open_door.post("/v1/session", json={"code": code}, headers=OURS).status_code == 401


def test_attempts_to_sign_in_are_limited(service: FakeService) -> None:
    with TestClient(make_app(service)) as door:
        tries = [door.post("/v1/session", json={"token": "wrong"}, headers=OURS).status_code for _ in range(14)]
        assert tries[0] == 401
        assert tries[-1] == 429
        assert door.post("/v1/session", json={"token": ADMIN}, headers=OURS).status_code == 429
        assert door.get("/v1/jobs", headers={"Authorization": f"Bearer {ADMIN}"}).status_code == 200


def test_sessions_outlive_the_service_but_not_their_time(tmp_path: Path) -> None:
    now, path = [time.time()], tmp_path / "sessions.json"
    kept = Sessions(path, lambda: now[0])
    cookie, session = kept.begin(BrowserSession(Caller("ann", Role.USER, "a", token="t1")))
    assert cookie not in path.read_text()
    assert os.stat(path).st_mode & 0o777 == 0o600
    again = Sessions(path, lambda: now[0])
    found = again.find(cookie)
    assert found is not None
    assert (found.caller.name, found.caller.token) == ("ann", "t1")
    code = again.new_code(session)
    now[0] += 61
    assert again.redeem(code) is None
    now[0] = session.until_s
    assert again.find(cookie) is None
    path.write_text("{broken")
    assert Sessions(path).find(cookie) is None


def test_jobs_are_checked_without_being_submitted(user_a: TestClient, service: FakeService) -> None:
    good = user_a.post("/v1/jobs/check", json={"jobs": [{"run": "true", "gpus": 2}]}).json()
    assert (good["error"], good["jobs"][0]["gpus"]) == ("", 2)
    for job, why in (({"run": "true", "gpu": 1}, "gpu"), ({"run": "true", "tenant": "b"}, "tenant 'a'")):
        told = user_a.post("/v1/jobs/check", json={"jobs": [job]}).json()
        assert told["jobs"] == []
        assert why in told["error"]
    assert service.submits == 0
