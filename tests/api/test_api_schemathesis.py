"""Whatever is sent, the answer is documented and never our fault."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import schemathesis
from fake_service import ADMIN, FakeService
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks

import effort
from cotenant.api import make_app
from cotenant.api.shares import CallerLimits
from cotenant.core.lifecycle import JobState

load_all_checks()
PATIENT = CallerLimits(rate=1e6, burst=1e6, strangers=1e6)
HEADERS = {"Authorization": f"Bearer {ADMIN}"}
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "unsupported_method", "missing_required_header", "ignored_auth",
)  # fmt: skip


def _service() -> FakeService:
    """Jobs that exist under the names that fuzzers like, all ended, so that a followed log ends too."""
    service = FakeService(Path(tempfile.mkdtemp()))
    caller = service.authenticate(ADMIN)
    assert caller is not None
    from cotenant.core.jobspec import parse_job

    for _ in range(3):
        service.submit(caller, [parse_job({"run": "true"})])
    for name in list(service.infos):
        service.start(name).write_text("some output\n")
        service.move(name, JobState.SUCCEEDED)
    for alias in "0aA":
        service.infos[alias] = service.infos["1"]
    return service


APP = make_app(_service(), poll_s=0.01, limits=PATIENT)
schema = schemathesis.openapi.from_asgi("/openapi.json", APP, headers=HEADERS)
schema = schema.exclude(path="/v1/events/stream")  # has no end: see test_api_streams
if not effort.WHOLE[0]:
    schema = schema.include(path=["/v1/jobs/{job}", "/v1/policy"])


@schema.parametrize()
@settings(
    max_examples=int(os.environ.get("COTENANT_EXAMPLES", "12")),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_documented(case: schemathesis.Case) -> None:
    # A valid request may ask to wait for events that never come; a broken one must be sent as it is.
    patient = case.path.endswith("events") and case.meta is not None and case.meta.generation.mode.is_positive
    response = case.call(headers=HEADERS, params={"wait": "0"} if patient else None)
    too_large = response.status_code == 413  # a refusal as well, which the check of refusals does not know
    checks = schemathesis.checks.CHECKS.get_by_names([*CHECKS, *([] if too_large else ["negative_data_rejection"])])
    case.validate_response(response, checks=checks, headers=HEADERS)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR")
