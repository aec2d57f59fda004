"""Which jobs are of one kind, as far as waiting for GPUs goes."""

from __future__ import annotations

import pytest

from cotenant.core.jobspec import parse_job
from cotenant.service.store.barriers import MOST_KINDS, Barriers, kind_of


def _kind(run: str, user: str = "ann", **more: object) -> str:
    return kind_of(parse_job({"run": run, **more}), "team", user)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("python train.py --lr 0.1", "python train.py --lr 3e-4", True),
        ("python train.py --seed=1", "python train.py --seed=22", True),
        ("cd /data; python train.py", "cd /data && python train.py", True),
        ("python train.py --seed 1 2>&1", "python train.py --seed 1", True),
        ("python train.py", "python train2.py", False),
        ("python train.py --model a", "python train.py --model b", False),
    ],
)
def test_numbers_make_no_other_kind_and_words_do(one: str, two: str, same: bool) -> None:
    assert (_kind(one) == _kind(two)) == same
    assert _kind(one)


@pytest.mark.parametrize(
    "run",
    [
        "python prepare.py; python train.py", "python train.py | tee log", "bash run.sh", "./run.sh", "make train",
        "python train.py & wait", "python $(which train.py)", "X=1 bash run.sh", 'python -c "a;b"',
    ],
)  # fmt: skip
def test_texts_that_may_run_several_programs_have_no_kind(run: str) -> None:
    assert _kind(run) == ""


def test_another_user_place_or_library_is_another_kind() -> None:
    run = "python train.py"
    kinds = [_kind(run), _kind(run, "bob"), _kind(run, workdir="/w"), _kind(run, env={"PYTHONPATH": "/x"})]
    assert len({*kinds}) == 4
    assert _kind(run, env={"SEED": "1"}) == _kind(run, env={"SEED": "2"})
    assert _kind("python $S", env={"S": "1"}) != _kind("python $S", env={"S": "2"})


def test_old_kinds_are_forgotten() -> None:
    known = Barriers()
    for number in range(MOST_KINDS + 1):
        known.learn(f"k{number}", "job")
    known.learn("k1", "steps")
    assert (known.places("k0"), list(known.places("k1"))) == ((), ["job", "steps"])
    assert Barriers(known.rows()).rows() == known.rows()
