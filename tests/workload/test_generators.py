from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec
from cotenant.core.workload import Status, Workload
from cotenant.workload.cluster_file import cluster_text, load_cluster
from cotenant.workload.generators import GENERATORS, generate
from cotenant.workload.generators.fitting_cluster import fitting_cluster

NAMES = tuple(GENERATORS)
# Shares in per cent for 1, 2-4, 5-8, >8 GPUs, as computed from the public logs.
PUBLISHED = {
    "philly-like": ((87.1, 7.0, 4.9, 0.9), (20.4, 21.1, 47.2, 11.3), 1196, 27_510, 29_001, 1.69),
    "helios-like": ((51.8, 13.0, 25.2, 10.0), (4.7, 7.9, 28.6, 58.8), 204, 18_201, 9_088, 6.74),
    "pai-like": ((77.0, 6.0, 3.2, 13.8), (8.3, 2.5, 4.7, 84.5), 618, 12_201, 5_029, 4.97),
}


def sample(name: str, jobs: int = 50_000) -> Workload:
    return generate(Spec.parse(f"{name}:jobs={jobs},gpus=1024,seed=7"))


def shares(work: Workload, weight: np.ndarray) -> np.ndarray:
    bucket = np.searchsorted([1, 4, 8], work.gpus)
    return 100 * np.bincount(bucket, weight, minlength=4) / weight.sum()


@pytest.mark.parametrize("name", PUBLISHED)
def test_fits_the_published_distributions(name: str) -> None:
    jobs, hours, median, p90, mean, gpus = PUBLISHED[name]
    work = sample(name)
    assert shares(work, np.ones(len(work))) == pytest.approx(jobs, abs=0.6)
    assert shares(work, work.gpus * work.duration_s) == pytest.approx(hours, abs=5)
    assert np.median(work.duration_s) == pytest.approx(median, rel=0.10)
    assert np.quantile(work.duration_s, 0.9) == pytest.approx(p90, rel=0.10)
    assert work.duration_s.mean() == pytest.approx(mean, rel=0.08)
    assert work.gpus.mean() == pytest.approx(gpus, rel=0.05)
    assert np.count_nonzero(work.duration_s == work.duration_s.max()) < 10
    assert len(set(work.model.code.tolist())) == 10


def test_philly_statuses_and_retries_by_size() -> None:
    work = sample("philly-like")
    gpu_s = work.gpus * work.duration_s
    jobs = [np.mean(work.status == status) for status in (Status.PASSED, Status.KILLED, Status.FAILED)]
    time = [gpu_s[work.status == s].sum() / gpu_s.sum() for s in (Status.PASSED, Status.KILLED, Status.FAILED)]
    assert jobs == pytest.approx((0.693, 0.135, 0.172), abs=0.015)
    assert time == pytest.approx((0.445, 0.377, 0.178), abs=0.06)
    bucket = np.searchsorted([1, 4, 8], work.gpus)
    retries = np.bincount(list(work.attempts), [len(a) for a in work.attempts.values()], minlength=len(work))
    per_bucket = [retries[bucket == b].mean() for b in range(4)]
    assert per_bucket == pytest.approx((0.32, 0.98, 1.09, 1.11), abs=0.12)
    for row, lengths in work.attempts.items():
        assert min(lengths) >= 1
        assert sum(lengths) < work.duration_s[row]


def test_helios_statuses_and_users() -> None:
    work = sample("helios-like")
    gpu_s = work.gpus * work.duration_s
    assert np.mean(work.status != Status.PASSED) == pytest.approx(0.376, abs=0.01)
    assert gpu_s[work.status == Status.FAILED].sum() / gpu_s.sum() == pytest.approx(0.093, abs=0.02)
    by_user = np.sort(np.bincount(work.user.code, gpu_s))[::-1]
    top = by_user[: round(0.05 * np.count_nonzero(by_user))].sum() / by_user.sum()
    assert 0.4 <= top <= 0.6


@pytest.mark.parametrize(
    ("name", "quiet", "busy"), [("helios-like", (4, 8), (14, 18)), ("philly-like", (12, 16), (5, 9))]
)
def test_days_and_weeks_show(name: str, quiet: tuple[int, int], busy: tuple[int, int]) -> None:
    work = sample(name)
    weeks = work.submit_s[work.submit_s < 7 * 86400 * (work.span_s // (7 * 86400))]
    hour = weeks / 3600 % 24
    day = (weeks // 86400 % 7).astype(int)

    def rate(low: int, high: int) -> float:
        return float(np.mean((hour >= low) & (hour < high)))

    assert rate(*busy) > 1.8 * rate(*quiet)
    per_day = np.bincount(day, minlength=7)
    assert per_day[5:].mean() < 0.75 * per_day[:5].mean()


def test_gavel_rule() -> None:
    work = sample("gavel-like")
    assert work.duration_s.min() >= 60 * 10**1.5 - 1
    assert work.duration_s.max() <= 60 * 10**4
    assert work.duration_s.mean() / 3600 == pytest.approx(16.8, rel=0.03)
    assert np.mean(work.duration_s < 60_000) == pytest.approx(0.8, abs=0.01)
    assert [np.mean(work.gpus == g) for g in (1, 2, 4, 8)] == pytest.approx((0.7, 0.1, 0.15, 0.05), abs=0.01)
    assert len(work.model.names) == 26
    assert len(set(work.model.code[work.gpus > 1].tolist())) == 19
    gaps = np.diff(work.submit_s)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.05)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.integers(2, 3000),
    st.floats(0.05, 5),
    st.integers(0, 2**31),
    st.sampled_from([1, 8, 128, 4096]),
)
def test_load_is_met_exactly_and_nothing_exceeds_the_cluster(
    name: str, jobs: int, load: float, seed: int, gpus: int
) -> None:
    spec = Spec.parse(f"{name}:jobs={jobs},load={load!r},seed={seed}")
    work = generate(spec, gpus)
    assert len(work) == jobs
    assert work.load(gpus) == pytest.approx(load, rel=1e-6)
    assert work.gpus.max() <= gpus
    assert work.submit_s[0] == 0
    assert np.all(np.diff(work.submit_s) >= 0)
    assert work.duration_s.min() >= 1


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_jobs(name: str) -> None:
    first, again, other = (generate(Spec.parse(f"{name}:jobs=500,seed={seed}"), 64) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.submit_s, again.submit_s)
    np.testing.assert_array_equal(first.duration_s, again.duration_s)
    np.testing.assert_array_equal(first.user.code, again.user.code)
    assert first.attempts == again.attempts
    assert not np.array_equal(first.duration_s, other.duration_s)


def test_parameters() -> None:
    def make(text: str, gpus: int | None = None) -> Workload:
        return generate(Spec.parse(text), gpus)

    assert make("philly-like:jobs=2000,gpus=64,load=0.5", 999).load(64) == pytest.approx(0.5)
    assert make("pai-like:jobs=5000,max_gpus=8", 64).gpus.max() == 8
    mixed = make("helios-like:jobs=5000,mix=[1:0.5/3:0.5]", 64)
    assert set(mixed.gpus.tolist()) == {1, 3}
    assert make("gavel-like:jobs=50,load=inf", 8).span_s == 0
    free = make("helios-like:jobs=1294")
    assert free.span_s == pytest.approx(2 * 86400)
    assert "no GPUs to relate the load to" in free.notes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("phily-like", "unknown generator 'phily-like': did you mean 'philly-like'"),
        ("philly-like:job=5", "unknown parameter of generator 'philly-like' 'job': did you mean 'jobs'"),
        ("philly-like:jobs=many", "jobs=many is not a whole number"),
        ("philly-like:jobs=0", "jobs=0 must be at least 1"),
        ("philly-like:load=-1", "load=-1 must not be negative"),
        ("philly-like:mix=[1:0.5/x:1]", "'x:1' is not GPUS:SHARE"),
        ("philly-like:mix=[4:1],max_gpus=2", "no job size is at most 2 GPUs"),
    ],
)
def test_bad_parameters(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        generate(Spec.parse(text), 64)


@pytest.mark.parametrize("name", ["philly-like", "helios-like"])
def test_as_many_tenants_and_users_as_asked(name: str) -> None:
    work = generate(Spec.parse(f"{name}:jobs=20000,tenants=40,users=400"), 512)
    jobs = np.bincount(work.tenant.code, minlength=40)
    assert len(work.tenant.names) == 40
    assert len(work.user.names) == 400
    assert np.sort(jobs)[-8:].sum() > 0.5 * len(work)  # a fifth of the tenants have most of the jobs
    assert (jobs > 0).sum() > 30


@pytest.mark.parametrize("departments", [0, 3])
def test_a_cluster_with_tenants_fits(tmp_path: Path, departments: int) -> None:
    work = generate(Spec.parse("philly-like:jobs=2000,gpus=256"), None)
    cluster = fitting_cluster(work, None, 256, departments)
    path = tmp_path / "c.yaml"
    path.write_text(cluster_text(cluster))
    again = load_cluster(str(path))
    assert (again.groups, again.tenants) == (cluster.groups, cluster.tenants)
    assert again.tenants is not None
    assert 0.79 * 256 < again.tenants.guaranteed("") <= 0.81 * 256
    assert len(again.tenants.children()) == (departments or 11)
    asked = np.bincount(work.tenant.code, work.gpus * work.duration_s)
    largest = work.tenant.names[int(np.argmax(asked))]
    assert again.tenants.of(largest).guaranteed == max(tenant.guaranteed for tenant in again.tenants.tenants)
