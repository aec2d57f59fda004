"""What every shipped policy says to a job that waits on a crowded cluster: its own words, with the job's numbers."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.reasons import Reason
from cotenant.core.spec import Spec
from cotenant.core.workload import Workload
from cotenant.engine.explain import explain
from cotenant.policies import known_policies
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import jobs
from cotenant.workload.generators import generate

ROUND = r"target 0\.\d\d of gpu; received \d\.\d\d since \d+ s; (owed \d+ s|\d+ s ahead).*next round at \d+ s"
SIZES = r"it takes 1 to 8 GPUs and has \d: .*; sizes are given out again at \d+ s"
WORDS = {
    "fifo": r"behind '\d+', which does not fit; .* it came at \d+ s",
    "backfill": r"needs \d GPUs and \d are left .* it came at \d+ s",
    "easy": r"believed to take \d+ s, and may pass the head only if",
    "sjf": r"believed to take \d+ s in all",
    "qssf": r"believed to take \d+ s in all, and shorter jobs come first",
    "random": r"drawn by lot",
    "srtf": r"believed to take \d+ s more",
    "srsf": r"believed to need \d+ GPU-seconds more",
    "las": r"has had \d+ GPU-seconds, and who had less",
    "tiresias-l": r"has had \d+ GPU-seconds and is in queue \d of 2 .*; it (first ran at \d+ s|has never run)",
    "tiresias-g": r"has had \d+ GPU-seconds and is in queue \d of 2 .*; its index follows",
    "gavel": ROUND,
    "themis": ROUND,
    "ftf": r"would end \d+\.\d+ times as late as alone",
    "allox": r"in the matching it is number \d+ from the end|not among the \d+ jobs that were matched",
    "gandiva-packing": rf"{ROUND}|it is to run alone|it is to share",
    "edf": r"its deadline is at \d+ s",
    "edf-backfill": r"its deadline is at \d+ s",
    "chronus": r"(refused|promised|promised late): .*(lease|GPUs)",
    "ones": SIZES,
    "ones-goodput": SIZES,
    "optimus": SIZES,
    "muri-s": r"number \d+ of \d+ by remaining GPU time.*(group|jobs on a GPU)",
    "muri-l": r"number \d+ of \d+ by attained GPU time.*(group|jobs on a GPU)",
    "sjf-bsbf": r"needs \d GPUs: ",
    "sjf-bsbf-paper": r"needs \d GPUs: ",
    "sjf-ffs": r"needs \d GPUs: ",
    "antman": r"it is guaranteed, and (holds \d of its \d GPUs|guaranteed jobs hold every GPU)|it is opportunistic: ",
    "gandiva": r"needs \d GPUs: on every GPU that it could use \d jobs take turns already",
    "philly": r"waits for locality \(\d GPUs .*\): attempt \d+ .*; its tenant has \d GPUs of its quota of|at its quota",
    "slurm": r"number \d+ of \d+ by priority and needs \d+ GPUs: its reservation begins in \d+ s",
    "slices": r"it needs (\d whole GPUs|1 GPU: none)",
    "horus": r"asks for \d GPUs that it is predicted to keep \d+ % busy; ",
    "horus+": r"asks for \d GPUs that it is predicted to keep \d+ % busy; ",
}
SHARE = ("muri-s", "muri-l", "sjf-bsbf", "sjf-bsbf-paper", "sjf-ffs", "antman", "gandiva", "horus", "horus+")


def crowd(policy: str) -> Workload:
    if policy in ("ones", "ones-goodput", "optimus"):
        return generate(Spec.parse("ones-like:jobs=30,seed=0"), 8)
    work = generate(Spec.parse("philly-like:jobs=40,load=4,seed=1"), 8)
    due_s = work.submit_s + 1.5 * work.duration_s
    return replace(work, deadline_s=due_s) if policy in ("edf", "edf-backfill", "chronus") else work


def all_said(policy: str) -> tuple[list[Reason], list[Reason]]:
    """What those who wait are told halfway and late, and what those who run are."""
    work, cluster = crowd(policy), Cluster.parse("2x4")
    profile = {"profile": "h200"} if policy in SHARE else {}
    run = Simulation(Experiment(work, cluster, policy, compiled=False, **profile))
    waiting, running = [], []
    for part in (0.3, 0.5, 0.7, 0.9):
        now_s = float(np.quantile(work.submit_s, part))
        run.advance(now_s)
        for row, state in enumerate(run.state.i[:, col.STATE].tolist()):
            if state in (col.WAITING, col.RUNNING):
                reason = explain(run.engine, run.work, cluster, row, now_s)
                (waiting if state == col.WAITING else running).append(reason)
    return waiting, running


@pytest.mark.parametrize("policy", known_policies())
def test_a_waiting_job_hears_the_words_of_its_policy(policy: str) -> None:
    waiting, _ = all_said(policy)
    assert waiting
    texts = [reason.text for reason in waiting]
    assert any(re.search(WORDS[policy], text) for text in texts), texts
    assert all(re.search(r"\d", text) for text in texts)


def test_an_elastic_job_that_runs_hears_why_it_has_no_more() -> None:
    assert any(re.search(SIZES, reason.text) for reason in all_said("optimus")[1])


def test_a_lease_to_come_is_named() -> None:
    """Five leases of 20 minutes for row 0 and five for row 1, of the twelve before their deadline: one waits."""
    work = jobs((0, 4, 5000), (0, 4, 5000), (0, 4, 100_000))
    work = replace(work, deadline_s=np.array([15_000.0, 15_000.0, np.nan]))
    run = Simulation(Experiment(work, Cluster.parse("1x4"), "chronus", costs="none", compiled=False))
    run.advance(10.0)
    texts = {explain(run.engine, run.work, Cluster.parse("1x4"), row, 10.0).text for row in range(3)}
    words = r"promised: 5 leases are reserved .* its next lease begins at \d+ s"
    assert any(re.search(words, text) for text in texts), texts


def test_pairs_are_named_by_their_jobs() -> None:
    """Row numbers in the words of a plan become names."""
    work = replace(jobs((0, 1, 10), (0, 1, 10)), job_id=np.array(["first", "second"], object))
    run = Simulation(Experiment(work, Cluster.parse("1x1"), "antman", compiled=False))
    run.advance(1.0)
    run.engine._said = lambda row: f"row {row} waits for row 0"
    assert explain(run.engine, run.work, Cluster.parse("1x1"), 1, 1.0).text == "'second' waits for 'first'"
