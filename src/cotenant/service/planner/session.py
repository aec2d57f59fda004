"""One policy at work on one cluster: its engine, the tables that follow the book, and what is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cotenant.backends.base import NodeInfo
from cotenant.beliefs.company import MeasuredSpeeds, PairSpeeds
from cotenant.core import columns as col
from cotenant.core.decision import Decision, Event
from cotenant.core.jit_later import LATER
from cotenant.core.plan import ALONE, Places, Terms
from cotenant.core.prices import prices_of
from cotenant.core.reasons import Cause, Reason
from cotenant.core.state import Rule
from cotenant.core.view import Facts
from cotenant.core.workload import Ints
from cotenant.engine.cycle import Engine
from cotenant.engine.defrag import Defragmenter
from cotenant.engine.events import reheat
from cotenant.engine.explain import explain
from cotenant.engine.invariants import check
from cotenant.engine.live_rows import LiveRows
from cotenant.engine.observe import places_of
from cotenant.engine.tables import StopCosts
from cotenant.placement.modes import parse_placement
from cotenant.policies import Policy, make_policy
from cotenant.service.observer.node_access import NodeAccess
from cotenant.service.observer.report_columns import NO_NEWS, ReportNews
from cotenant.service.observer.reports import Reports
from cotenant.service.options import Options
from cotenant.service.planner import facts as known
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.planner.bonds import bonds_of
from cotenant.service.planner.budget import Budget
from cotenant.service.planner.decision import Act
from cotenant.service.planner.durations import LiveDurations
from cotenant.service.planner.follower import Follower
from cotenant.service.planner.learning import Relearned, context_of
from cotenant.service.planner.memory import PAIRS, POLICY, PROMOTED, promotions, recall, written
from cotenant.service.planner.nodes import NodeNumbers
from cotenant.service.planner.pairs import Kept, SideBySide, UseOf, held_back, kept_for
from cotenant.service.planner.tenant_tables import PastOf, TenantPasts
from cotenant.service.store.book import Book
from cotenant.service.store.job import Gpus, LiveJob

_MOST_ROWS = 200_000  # of a session, while few of them live; the next one begins with what was journaled
_LARGE = 3000  # jobs from which on compiled kernels pay


class Session:
    """Keeps the engine in step with the book and lets it decide."""

    def __init__(
        self, policy: str, nodes: Sequence[NodeInfo], book: Book, reports: Reports, options: Options,
        may_suspend: Callable[[LiveJob], bool], now_s: float, kept: Kept | None = None,
        *, openings: NodeAccess, costs: StopCosts | None = None,
        use_of: UseOf = lambda job, alone: None, past_of: PastOf = lambda now_s: {},
    ) -> None:  # fmt: skip
        self.policy_name, self._book, self._reports, self._labels = policy, book, reports, openings.labels
        self.nodes = NodeNumbers(nodes, openings.labels(), book.tenants)
        self._types, self._tree = {node.name: node.gpu_type for node in nodes}, book.tenants.tree
        self._shape = NodeNumbers.shape_of(nodes, openings.labels(), book.tenants)
        self._seen, self._same = object(), True  # nodes that were last compared with it, and what came of that
        gpu_gib = known.memory_by_type(nodes)
        self.kept = kept_for(kept, options, self.nodes.types, gpu_gib)
        self.kept.durations = self._durations = self.kept.durations or LiveDurations(book, options.estimator)
        self.kept.pairing.recall(book.memory.get(PAIRS))
        self._policy = make_policy(policy)
        self.traits = self._policy.traits
        rule = self.begin(options)
        room = np.array([gpu_gib.get(name, 0.0) or np.inf for name in self.nodes.types])
        self.tables = LiveRows(
            self.nodes.cluster, parse_placement(options.placement), rule, np.ones((1, len(self.nodes.types), 2)),
            costs=costs or StopCosts(np.inf, most_suspended=options.max_suspended, patience_s=options.grace_s),
            sharing=True, gpu_gib=room if self.traits.shares else None, start_s=now_s,
        )  # fmt: skip
        told = self.beliefs(options), may_suspend, self._types, self.traits, openings.open_to
        self.follower = Follower(book, self.tables, self.nodes, *told)
        self.engine = Engine(self.tables, self._policy, rule, defrag=Defragmenter() if options.defrag else None)
        self._pasts = TenantPasts(book, self.tables, past_of)
        self._past = Relearned(self.engine, self.tables, lambda: self._policy.rule(context_of(book, options)), now_s)
        self.budget, self._checks = Budget(options.budget_s), options.check_invariants
        self._parting: list[str] = []
        self._kinds, self.late, self._recalled, self._told = 0, 0, False, dict[str, Any]()
        self.pairs = SideBySide(book, reports, self.kept, self._types, self.traits, use_of)

    @property
    def policy(self) -> Policy:
        """The policy at work."""
        return self._policy

    def begin(self, options: Options) -> Rule:
        """Let the policy begin; its rule."""
        self._policy.begin(context_of(self._book, options))
        return self._policy.rule(context_of(self._book, options))

    def beliefs(self, options: Options) -> LiveBeliefs:
        """What is believed of jobs one by one."""
        kept, hosts = self.kept, options.deals_out_hosts
        return LiveBeliefs(self._book, self._reports, kept.profiles, hosts, kept.pairing, self._durations)

    def fits(self, policy: str, nodes: Sequence[NodeInfo]) -> bool:
        """Whether this is the policy, and the cluster has the same shape as when the session began."""
        tenants, labels = self._book.tenants, self._labels()
        if (seen := (nodes, labels, tenants)) != self._seen:
            same = NodeNumbers.shape_of(nodes, labels, tenants) == self._shape
            self._seen, self._same = seen, same and (tenants.tree is None) == (self._tree is None)
        worn = len(self.tables) > max(_MOST_ROWS, 4 * len(self.follower.row_of))  # most of its rows are dead
        return policy == self.policy_name and self._same and not worn

    @property
    def busy(self) -> bool:
        """Whether a decision is still in the making: nothing can be told to the engine then."""
        return self.budget.busy

    def news(self) -> tuple[ReportNews, set[str]]:
        """What jobs say that have spoken since this was asked last; some jobs on GPUs whose like were measured."""
        runs, self._book.learned.news = self._book.learned.news, set()
        return self._reports.news(), self.follower.hearing.doubted(runs)

    # -- one step --------------------------------------------------------------------------------------------------

    def take_in(
        self, changed: set[str], shut: set[str], now_s: float, said: ReportNews = NO_NEWS, doubted: Iterable[str] = ()
    ) -> list[Event]:
        """What the engine is to be told, with the store's lock held; `said` and `doubted` are as `news` has them."""
        if self._tree is not self._book.tenants.tree:
            self._tree = self._book.tenants.tree
            self.tables.set_tree(self._tree)
        self._past.look(now_s)
        self.pairs.look(now_s, lambda: held_back(self._book, self.tables, self.follower.row_of, self.kept.pairing))
        self._parting = self.pairs.partings()
        renewed = self._durations.follow(changed)
        changed = changed | self._book.chained.keys() | renewed
        events = self.follower.events(changed, shut, now_s, self._parting, renewed)
        self._pasts.write(now_s)
        events += self.follower.hearing.heard(said, doubted, changed | self.kept.pairing.settling, now_s)
        if not self._recalled:
            self._recalled = True
            recall(self._policy, self.policy_name, self._book.memory.get(POLICY), self.follower.row_of)
        if self.kept.profiles.learn(self.kept.pairing.seen.rates) or len(self.kept.profiles.kinds) > self._kinds:
            self._kinds = len(self.kept.profiles.kinds)
            self.tables.set_speeds(self.kept.profiles.speed)
        if len(self.follower.row_of) > _LARGE:
            LATER.want()
        return events

    def decide(self, events: Sequence[Event], now_s: float) -> Decision | None:
        """The engine's decision; None while a slow policy still thinks."""

        def think() -> Decision:
            self.follower.believe(now_s)
            reheat(self.tables.state)
            self.renew(now_s)
            decision = self.engine.step(now_s, events)
            if self._checks:
                check(self.tables.state)
            return decision

        decision = self.budget.decide(think) if self.traits.plans or self.traits.computed else think()
        self.late = int(decision is None)
        return decision

    def begin_forecast(self, events: Sequence[Event], now_s: float) -> None:
        """Take the events in without deciding."""
        self.follower.believe(now_s)
        self.renew(now_s)
        self.engine.observe(now_s, events)
        self.follower.hearing.warm(now_s)
        reheat(self.tables.state)

    def finish_decision(self) -> Decision | None:
        """The decision that was in the making, once it is there."""
        decision = self.budget.decide()
        self.late = int(decision is None)
        return decision

    def renew(self, now_s: float) -> None:
        """What policies in Python may know beside the tables, and how fast jobs are believed to go in company."""
        traits, profiles, seen, row_of = self.traits, self.kept.profiles, self.kept.pairing.seen, self.follower.row_of
        moves = traits.takes_turns or self.engine.defrag is not None
        movable = known.movable_rows(self.tables, row_of, self._book) if moves else None
        if not (traits.plans or traits.computed):
            self.engine.facts = Facts(movable=movable)
            return
        state, rows = self.tables.state, len(self.tables)
        pools = tuple(self.nodes.types[kind] for kind in state.pool[:, col.POOL_TYPE].tolist())
        steps = known.deadline_steps(self.tables, row_of, self._book)
        facts = Facts(pools, prices_of(pools), steps=steps, movable=movable)
        if traits.names_gpus:
            together = profiles.together(seen)
            facts = replace(facts, together=together)
            small = np.union1d(np.flatnonzero(state.i[:rows, col.LEVEL]), self._unstated())
            claimed = together.claimed_gib()
            state.f[small, col.GPU_GIB] = claimed[state.i[small, col.SPEED_ROW], state.i[small, col.LEVEL]]
            self.engine.rates = MeasuredSpeeds(together, self.kept.pairing.measured(row_of), not traits.overcommits)
            if traits.slices:
                cut = known.slicing_of(self.nodes.cluster, together, self.tables, row_of, self._book)
                facts, self.engine.rates = known.with_slices(facts, cut, self.engine.rates)
        elif traits.shares:
            pair = profiles.pairs(seen, traits.pair_belief)
            facts = replace(facts, pair=pair)
            measured = self.kept.pairing.measured(row_of)
            tried = MeasuredSpeeds(profiles.together(seen), measured) if pair is None and seen.guesses else None
            self.engine.rates = tried if pair is None else PairSpeeds(np.where(pair > 0, pair, 0.5))
        if traits.interleaves:
            of, nominal_s = state.i[:rows, col.SPEED_ROW].copy(), state.f[:rows, col.BELIEF].copy()
            facts = replace(facts, stages=profiles.stages(of, nominal_s, seen))
        if traits.resizes:
            facts = known.with_training(facts, self.tables, row_of, self._book, self._reports, self.kept.trainings)
        if traits.promises:
            facts = replace(facts, bonds=bonds_of(self.follower, self._types))
        self.engine.facts = facts if known.are_news(facts, self.engine.facts) else self.engine.facts

    def _unstated(self) -> Ints:
        """Rows of jobs that say nothing of their memory and have no company: they need what their like was seen to."""
        kinds = np.array([kind.mem_gib == 0 for kind in self.kept.profiles.kinds] or [False])
        rows = np.flatnonzero(kinds[self.tables.state.i[: len(self.tables), col.SPEED_ROW]])
        row_of = self.follower.row_of
        return np.setdiff1d(rows, [row_of[job] for job in self.kept.pairing.company if job in row_of])

    # -- answers -----------------------------------------------------------------------------------------------------

    def unheard(self) -> list[Act]:
        """Jobs that are to leave, of which the book does not know: they are told again."""
        i, row_of = self.tables.state.i, self.follower.row_of
        turns = {job for job in self.follower.unheard if self.traits.takes_turns and i[row_of[job], col.SLICE] >= 0}
        return [
            Act("suspend" if i[row_of[job], col.HOME] >= 0 else "stop", job, why="turn" if job in turns else "preempt")
            for job in self.follower.unheard
        ]

    def name_of(self, row: int) -> str | None:
        """The job of a row."""
        return self.follower.job_at.get(row)

    def gpus(self, places: Places) -> Gpus:
        """Places by name of the node and index of the GPU."""
        return self.nodes.gpus(places)

    def need_gib(self, row: int) -> float:
        """Memory per GPU that a job needs on its terms; 0: as it asks."""
        job = self._book.jobs.get(self.follower.job_at.get(row, ""))
        stated = self.traits.names_gpus and job is not None and job.spec.gpu_mem_gib > 0  # what was seen limits nobody
        return known.granted_gib(self.tables.state, self.engine.facts.together, row) if stated else 0.0

    def promised(self, still: bool = False) -> dict[str, Gpus]:
        """Jobs that will start on these GPUs as soon as others have left them; with `still` suspended ones too."""
        if not (state := self.tables.state).x[col.N_PROMISED]:
            return {}
        listed = state.run[: state.x[col.N_RUN]]
        mine = (listed >= 0) & (state.i[listed, col.PROMISED] == 1) & (still | (state.i[listed, col.HOME] < 0))
        rows = listed[mine].tolist()
        return {
            self.follower.job_at[row]: self.gpus(places_of(state, row)) for row in rows if row in self.follower.job_at
        }

    def agreed(self, job: str) -> Terms:
        """On what terms a job has, or will have, its GPUs."""
        row = self.follower.row_of.get(job)
        return ALONE if row is None or self.tables.state.i[row, col.SLICE] < 0 else self.engine.agreed(row)

    def partings(self) -> list[Act]:
        """Jobs that leave though no policy says so."""
        i, row_of = self.tables.state.i, self.follower.row_of
        return [Act("suspend" if i[row_of[job], col.RUNG] else "stop", job, why="preempt") for job in self._parting]

    def remembers(self, asked: bool) -> dict[str, Any]:
        """What users were told, or what was measured, and must survive a crash; `asked`: whether the policy was."""
        found: dict[str, Any] = {PAIRS: self.kept.pairing.keeps()}
        if self.engine.rule.numbers[col.KNOB] < np.inf:
            found[PROMOTED] = promotions(self.tables.state, self.follower.row_of)
        if asked:
            self._told = written(self._policy, self.policy_name, self.follower.job_at)
        found[POLICY] = self._told
        return {key: value for key, value in found.items() if value}

    def why(self, job: str, now_s: float) -> Reason | None:
        """Why a job waits, from the decision itself; None where it is not known here."""
        row = self.follower.row_of.get(job)
        if row is None or self.busy:
            return None
        if (found := self._book.jobs.get(job)) is not None and (over := self.follower.over_limit(found)):
            return Reason(job, now_s, Cause.USER_LIMIT, over, found.spec.gpus)
        return explain(self.engine, known.Names(self.tables, self.follower.job_at), self.nodes.cluster, row, now_s)
