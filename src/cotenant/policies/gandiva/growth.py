"""Growing and shrinking (Gandiva, OSDI'18): elastic jobs use GPUs of their server that nobody else wants.

Every decision is made as if all jobs had the GPUs that they asked for (`send_home`); what is idle afterwards goes to
those who have grown already, then to others (`grow`). So whoever needs GPUs gets them at once, and nobody waits or
takes turns because others have grown. A job grows when it has been watched and the GPUs have been idle for a while, if
it is believed to gain; steps per size, once seen, say whether it stays there (trial and undo). The batch stays as the
job asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import SharedRoom
from cotenant.policies.gandiva.server import Servers
from cotenant.policies.ones.throughput import throughputs

_LEAST_SEEN_S = 1.0
LEAST_GAIN = 1.05  # times the work of now, as believed, pause included
KEPT_S = 300.0  # a size is taken to last so long when its pause is charged


class Growth:
    """Which idle GPUs elastic jobs have. Remembers since when each GPU has been idle, the grown jobs not counted."""

    def __init__(self, idle_s: float, watch_s: float, trial_s: float) -> None:
        self.idle_s, self.watch_s, self.trial_s = idle_s, watch_s, trial_s
        self.next_s = np.inf  # when somebody could grow, or has been tried long enough to be judged
        self._since: dict[int, float] = {}
        self._gpus = 0
        self._known: dict[tuple[int, int], Floats] = {}  # by kind and size asked for, in one decision

    @staticmethod
    def send_home(board: SharedRoom) -> dict[int, list[int]]:
        """Seat every job that has grown on as many GPUs as it asked for; what each of them gave back."""
        given: dict[int, list[int]] = {}
        elastic = board.view.facts.elastic
        for row in [] if elastic is None else [row for row in board.gpus_of if elastic[row]]:
            gpus, asked = board.gpus_of[row], board.asked(row)
            if len(gpus) > asked:
                given[row] = gpus[asked:]
                board.resize(row, gpus[:asked])
        return given

    def grow(
        self,
        board: SharedRoom,
        servers: Servers,
        given: Mapping[int, list[int]],
        still: set[int],
        quota: Ints,
        calm: bool,
    ) -> None:
        """Give idle GPUs away, server by server.

        `still` are running jobs that stay where they are and share with nobody by plan. Only while the cluster is
        `calm` (nobody waits for GPUs or takes turns) does anybody grow; who has grown keeps what nobody wants.
        """
        view, self.next_s, self._known = board.view, np.inf, {}
        elastic = view.facts.elastic
        if view.facts.training is None or elastic is None:
            return
        self._look_for_idle(board, view.now_s)
        attained = dict(zip(view.rows.tolist(), view.attained_s.tolist(), strict=True))
        for node in range(len(board.first) - 1):
            idle = servers.free(node)
            spare = min(len(idle), len(board.gpus(node)) - servers.slots(node))
            able = [row for row in servers.jobs(node) if self._may_grow(board, row)]
            if spare <= 0 or not able:
                continue
            rows = [row for row in able if row in still and elastic[row]]
            for row in rows:
                kept = [gpu for gpu in given.get(row, []) if gpu in idle][: min(spare, _room(board, quota, row))]
                size = best_size(self._rates(board, row), board.gang(row), board.gang(row) + len(kept))
                self._take(board, quota, row, kept[: size - board.gang(row)], idle)
            spare = min(len(idle), len(board.gpus(node)) - servers.slots(node))
            if calm and spare > 0:
                self._give(board, quota, [row for row in rows if attained[row] >= self.watch_s], idle, spare)
                self._ask_again(board, able, attained, idle)
        for row in board.gpus_of:
            self._judge_later(board, row)

    def _look_for_idle(self, board: SharedRoom, now_s: float) -> None:
        """Since when GPUs have been idle; from now on where the cluster is another one."""
        if len(board.users) != self._gpus:
            self._since, self._gpus = {}, len(board.users)
        self._since = {gpu: self._since.get(gpu, now_s) for gpu, users in enumerate(board.users) if not users}

    def _may_grow(self, board: SharedRoom, row: int) -> bool:
        """Elastic, now or once it can save, on one server, and alone on its GPUs."""
        facts, gpus = board.view.facts, board.gpus_of[row]
        declared = (facts.elastic is not None and facts.elastic[row]) or (
            facts.sizes is not None and facts.sizes[row, 1]
        )
        return (
            bool(declared) and board.parts(row) <= 1
            and len({int(board.node_of[gpu]) for gpu in gpus}) == 1
            and all(len(board.users[gpu]) == 1 for gpu in gpus)
        )  # fmt: skip

    def _rates(self, board: SharedRoom, row: int) -> Floats:
        """Samples per second on 0, 1, ... GPUs, as many as a server has: as seen of this job and of others like it
        (same kind, same size asked for), by straight lines in between, the last of which goes on."""
        training, asked = board.view.facts.training, board.asked(row)
        assert training is not None
        key = int(training.kind[row]), asked
        if key not in self._known:
            alike = np.flatnonzero(training.kind == key[0])
            alike = alike[training.asked[alike] == asked]
            most = max(board.site.largest_node, asked)
            self._known[key] = throughputs(np.fmax.reduce(training.seen[alike], axis=0), most)
        return self._known[key]

    def _take(self, board: SharedRoom, quota: Ints, row: int, gpus: list[int], idle: list[int]) -> None:
        """Seat a job on more GPUs."""
        if gpus:
            board.resize(row, [*board.gpus_of[row], *gpus])
            quota[board.tenant(row)] -= len(gpus)
            idle[:] = [gpu for gpu in idle if gpu not in gpus]

    def _give(self, board: SharedRoom, quota: Ints, rows: list[int], idle: list[int], spare: int) -> None:
        """Idle GPUs to whoever gains most from them, then to the next."""
        now_s, training = board.view.now_s, board.view.facts.training
        assert training is not None
        part = max(1.0 - training.resize_s / KEPT_S, 0.0)  # of the time in which it runs at the new size
        ready = [gpu for gpu in idle if now_s - self._since[gpu] >= self.idle_s - 1e-9][:spare]
        while ready and rows:
            offers = []
            for row in rows:
                rate, size = self._rates(board, row), board.gang(row)
                wanted = best_size(rate, size, size + min(len(ready), _room(board, quota, row)))
                gain = part * float(rate[wanted] / rate[size]) if rate[size] > 0 else 0.0
                offers.append((gain, -row, wanted - size))
            gain, negative, more = max(offers)
            if gain < LEAST_GAIN or more == 0:
                return
            rows = [row for row in rows if row != -negative]
            self._take(board, quota, -negative, ready[:more], idle)
            ready = ready[more:]

    def _ask_again(self, board: SharedRoom, rows: list[int], attained: Mapping[int, float], idle: list[int]) -> None:
        """When a job will have been watched, or a GPU idle, for long enough; a second is the least to see anything.

        Jobs that have told nothing yet are looked at again before long.
        """
        now_s, elastic = board.view.now_s, board.view.facts.elastic
        times = [self._since[gpu] + self.idle_s for gpu in idle]
        for row in rows:
            times.append(now_s + max(self.watch_s, _LEAST_SEEN_S) - attained[row])
            if elastic is None or not elastic[row] or not self._rates(board, row).any():
                times.append(now_s + max(self.idle_s, _LEAST_SEEN_S))
        self.next_s = min([self.next_s, *(time_s for time_s in times if time_s > now_s)])

    def _judge_later(self, board: SharedRoom, row: int) -> None:
        """A size that has not been seen yet is judged when it has been tried."""
        view, size = board.view, board.gang(row)
        training = view.facts.training
        if training is None or size <= board.asked(row) or training.seen[row, size] > 0:
            return
        at = view.at(row)
        runs = view.running[at] and view.gpus[at] == size
        time_s = (float(view.since_s[at]) if runs else view.now_s) + training.load_s + self.trial_s
        if time_s > view.now_s:
            self.next_s = min(self.next_s, time_s)


def best_size(rate: Floats, least: int, most: int) -> int:
    """The smallest of the fastest sizes from `least` to `most`."""
    return least + int(np.argmax(rate[least : most + 1]))


def _room(board: SharedRoom, quota: Ints, row: int) -> int:
    """GPUs that a job may still get: within the quota of its tenant, the cores of its server, what it says is most."""
    most = int(board.view.size_limits(np.array([row]))[1][0])
    fed = board.fed(row, int(board.node_of[board.gpus_of[row][0]]))
    return max(min(int(quota[board.tenant(row)]), most - board.gang(row), fed), 0)
