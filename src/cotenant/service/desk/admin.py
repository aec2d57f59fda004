"""What people ask of the cluster: nodes, policy, tokens, copies and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cotenant.core.errors import InputError
from cotenant.journal import Entry
from cotenant.service.accounts.metrics import tenant_metrics
from cotenant.service.accounts.share import ShareBoard
from cotenant.service.desk import views as shown
from cotenant.service.desk.machines import Machines
from cotenant.service.desk.windows import checked
from cotenant.service.facade import Caller, Conflict, NodeStatus, NotFound, Role, TokenInfo, Unavailable
from cotenant.service.node_windows import NodeWindow
from cotenant.service.observer.usage import Usage
from cotenant.service.planner.interface import PlannerPart
from cotenant.service.store.store import Store
from cotenant.service.store.tokens import Keyring, last_admin, new_token


class Admin:
    """Nodes, policy, tokens, numbers. `home`: the folder in which it writes copies.

    `counters` are the other parts' numbers, and `is_ready` says whether they have reconciled with what really runs.
    `shut_down` ends the service.
    """

    def __init__(
        self, store: Store, planner: PlannerPart, machines: Machines, home: Path,
        counters: Mapping[str, float], is_ready: Callable[[], bool],
        shut_down: Callable[[str], None] = lambda jobs: None, usage: Usage | None = None,
        board: ShareBoard | None = None,
    ) -> None:  # fmt: skip
        self._usage, self._board = usage or Usage(), board
        self._store, self._planner, self._machines, self._home = store, planner, machines, home
        self._counters, self._is_ready, self._shut_down = counters, is_ready, shut_down
        self._keys = Keyring(lambda: store.book.tokens)

    def nodes(self, caller: Caller) -> list[NodeStatus]:
        """All nodes."""
        view = self._store.view()
        statuses = shown.node_statuses(self._machines.nodes(), view, self._store.clock(), self._usage)
        if not caller.tenant:
            return statuses
        mine = {job.id for job in view.on_gpus.values() if caller.sees(job.tenant)}
        return [replace(status, jobs=tuple(job for job in status.jobs if job in mine)) for status in statuses]

    def drain(self, caller: Caller, node: str, undo: bool = False) -> None:
        """Let nothing new start on a node (admin); or undo that, and excuse what is wrong with it."""
        caller.must_be(Role.ADMIN)
        if node not in {item.name for item in self._machines.nodes()}:
            raise NotFound(f"there is no node '{node}'")
        with self._store.lock:
            faults = self._store.book.health.of(node) if undo else ()
            excused = [{"node": node, "gpu": fault.gpu, "kind": fault.kind, "by": caller.name} for fault in faults]
            entries = [Entry("healthy", data=data) for data in excused]
            self._store.write([Entry("drain", data={"node": node, "undo": undo}), *entries])
        self._machines.wake()

    def windows(self, caller: Caller) -> list[NodeWindow]:
        """Maintenance and reservations to come or in force."""
        return sorted(self._store.view().windows.values(), key=lambda window: (window.from_s, window.id))

    def add_window(self, caller: Caller, window: NodeWindow, gpus: int = 0) -> NodeWindow:
        """Shut nodes for a time (admin). Its id is given; `gpus`: as many nodes as it takes to have so many."""
        caller.must_be(Role.ADMIN)
        with self._store.lock:
            book = self._store.book
            made = checked(window, self._machines.nodes(), book.windows.values(), gpus, self._store.clock())
            made = replace(made, id=f"w{book.seq + 1}")
            self._store.write([Entry("window", data={"window": made.as_dict()})])
        self._machines.wake()
        return made

    def remove_window(self, caller: Caller, window: str) -> None:
        """Give nodes back before their time is over (admin)."""
        caller.must_be(Role.ADMIN)
        with self._store.lock:
            if window not in self._store.book.windows:
                raise NotFound(f"there is no maintenance or reservation '{window}'")
            self._store.write([Entry("window-removed", data={"id": window, "why": f"by {caller.name}"})])
        self._machines.wake()

    def policy(self) -> str:
        """The live policy."""
        return self._store.book.policy

    def set_policy(self, caller: Caller, policy: str) -> None:
        """Change the live policy (admin)."""
        caller.must_be(Role.ADMIN)
        if ".py" in policy.split(":", 1)[0]:
            raise InputError("a policy from a file can only be set when the service starts: cotenant serve --policy")
        self._planner.check(policy)
        self._store.write([Entry("policy", data={"policy": policy})])
        self._machines.wake()

    def tokens(self, caller: Caller) -> list[TokenInfo]:
        """All tokens (admin)."""
        caller.must_be(Role.ADMIN)
        with self._store.lock:
            return [self._keys.shown(row) for row in self._store.book.tokens.values()]

    def create_token(
        self, caller: Caller, name: str, role: Role, tenant: str, *,
        scopes: tuple[str, ...] = (), lasts_s: float | None = None,
    ) -> tuple[TokenInfo, str]:  # fmt: skip
        """A new token and its secret, which is shown this once (admin). `lasts_s`: for so long."""
        caller.must_be(Role.ADMIN)
        expires_s = None if lasts_s is None else self._store.clock() + lasts_s
        data, secret = new_token(name, role, tenant, scopes, expires_s)
        with self._store.lock:
            self._store.write([Entry("token", data=data)])
            return self._keys.shown(self._store.book.tokens[data["id"]]), secret

    def revoke_token(self, caller: Caller, token: str, *, force: bool = False) -> None:
        """Make a token useless at once (admin); the last of an admin only by force."""
        caller.must_be(Role.ADMIN)
        with self._store.lock:
            rows = self._store.book.tokens
            if token not in rows:
                raise NotFound(f"there is no token '{token}'")
            if not force and last_admin(rows.values(), token, self._store.clock()):
                raise Conflict(f"token {token} is the last of an admin: make another first, or say --force")
            self._store.write([Entry("revoke", data={"id": token})])

    def authenticate(self, secret: str) -> Caller | None:
        """Whose secret this is, in time that tells nothing of others. Never waits."""
        return self._keys.whose(secret, self._store.clock())

    def holder(self, token: str) -> Caller | None:
        """Whose token of this id is, while it is good. Never waits."""
        return self._keys.holder(token, self._store.clock())

    def prove(self, hint: str, nonce: str, address: str) -> str:
        """That this is the service of the token of this hint (`cotenant.core.proof`); '' if not. Never waits."""
        return self._keys.prove(hint, nonce, address, self._store.clock())

    def save_uses(self) -> None:
        """Tell the journal when tokens were used, now and then."""
        if uses := self._keys.unsaved_uses():
            with suppress(Unavailable):
                self._store.write([Entry("used", data={"id": name, "at_s": at_s}) for name, at_s in uses.items()])

    def backup(self, caller: Caller, path: str) -> None:
        """A consistent copy of the journal at a new file under the service's own folder (admin)."""
        caller.must_be(Role.ADMIN)
        folder = (self._home / "backups").resolve()
        target = (folder / path).resolve()
        if folder not in target.parents:
            raise InputError(f"backup path '{path}' must stay inside {folder}")
        if target.exists():
            raise Conflict(f"'{path}' exists already")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._store.journal.backup(target)

    def shut_down(self, caller: Caller, jobs: str) -> None:
        """End the service (admin): `keep` leaves its jobs running, `stop` has them save and wait for the next start."""
        caller.must_be(Role.ADMIN)
        self._shut_down(jobs)

    def metrics(self) -> dict[str, float]:
        """Numbers for Prometheus: name (with labels in braces) -> value."""
        view, nodes = self._store.view(), self._machines.nodes()
        tenants = tenant_metrics(self._board.picture()) if self._board is not None else {}
        return {**shown.metrics(view, nodes, self._counters, self._store.clock(), self._usage), **tenants}

    def ready(self) -> bool:
        """Whether it has reconciled with what really runs."""
        return self._is_ready()

    def trouble(self) -> str:
        """Why it takes no changes just now: not reconciled yet, journal full or away. Empty when it is ready."""
        if not self.ready():
            return "it has not compared its journal with what really runs yet"
        return self._store.journal.trouble
