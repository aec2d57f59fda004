"""What people ask of the tree of tenants: look, add, change, remove. Everything is checked before it is journaled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from cotenant.core.cluster import NodeGroup
from cotenant.core.errors import InputError, unknown
from cotenant.core.tenants import Tenant, Tree, tenant_as_dict, tenant_from_dict
from cotenant.journal import Entry
from cotenant.service.desk.machines import Machines
from cotenant.service.desk.tenant_rights import administered, check_rights
from cotenant.service.facade import Caller, Conflict, NotFound, Role
from cotenant.service.node_marks import matched
from cotenant.service.store.store import Store
from cotenant.service.store.tenants import BookTenants

_IN_PARTS = ("limits", "guaranteed_by_type")  # fields that are mappings: what is not named of them stays


class LiveTenants:
    """The tree of tenants. Changes hold from the next decision on."""

    def __init__(self, store: Store, machines: Machines) -> None:
        self._store, self._machines = store, machines

    def known(self, caller: Caller) -> Caller:
        """The caller with the tenants that he administers. Never waits: a tree is replaced as a whole."""
        found = administered(self._store.book.tenants.tree, caller)
        return replace(caller, administers=found) if found != caller.administers else caller

    def tenants(self, caller: Caller) -> dict[str, Any]:
        """All tenants, what each holds now, how past use counts, and what is said of nodes."""
        view = self._store.view()
        now, tree = view.tenants, view.tenants.tree or Tree()
        gpus: Counter[str] = Counter()
        running, pending = Counter[str](), Counter[str]()
        for job in view.active:
            on = job.id in view.on_gpus
            (running if on else pending)[job.tenant] += 1
            gpus[job.tenant] += job.size if on else 0
        declared = [tenant.name for tenant in tree.tenants]
        names = [*declared, *sorted({*running, *pending} - {*declared})]
        rows = [
            {**asdict(tree.of(name)), "declared": name in tree, "gpus_held": gpus[name], "running_jobs": running[name],
             "waiting_jobs": pending[name]}
            for name in names
        ]  # fmt: skip
        share = {"half_life_s": tree.half_life_s, "min_run_s": tree.min_run_s, "reserve_after_s": tree.reserve_after_s}
        nodes = {name: mark.as_dict() for name, mark in now.nodes.items()}
        return {"tenants": rows, "fair_share": share, "nodes": nodes, "changed_by": now.who, "changed_s": now.at_s}

    # -- changes -------------------------------------------------------------------------------------------------

    def add(self, caller: Caller, name: str, parent: str, fields: dict[str, Any]) -> str:
        """A new tenant, with fields as in the cluster file; what was done, in words."""
        with self._store.lock:
            tree = self._tree
            if name in tree:
                raise Conflict(f"tenant '{name}' is there already: change it with `cotenant tenants set`")
            self._write(caller, tree.with_(tenant_from_dict(name, parent, fields, f"tenants.{name}")))
        return f"{name}: added" + (f" under {parent}" if parent else "")

    def set(self, caller: Caller, name: str, fields: dict[str, Any]) -> str:
        """Other fields of a tenant; None: as by default. Limits and GPU types are changed one by one."""
        with self._store.lock:
            old = self._one(name)
            fields = dict(fields)
            parent = fields.pop("parent", old.parent) or ""
            new = tenant_from_dict(name, str(parent), _merged(old, fields), f"tenants.{name}")
            self._write(caller, self._tree.with_(new))
        return f"{name}: {told(old, new)}"

    def remove(self, caller: Caller, name: str) -> str:
        """Take a tenant away that has no children and no unfinished jobs."""
        with self._store.lock:
            self._one(name)
            self._write(caller, self._tree.without(name))
        return f"{name}: removed"

    def share(self, caller: Caller, fields: dict[str, Any]) -> str:
        """How past use counts and how soon GPUs come back: half_life, min_run, reserve_after (admin)."""
        caller.must_be(Role.ADMIN)
        with self._store.lock:
            now = self._tree.as_dict()
            given = {**now.get("fair_share", {}), **fields}
            given = {key: value for key, value in given.items() if value is not None}
            self._write(caller, Tree.from_dict({**now, "fair_share": given}, "tenants"))
        return f"fair_share: {', '.join(f'{key} {value}' for key, value in fields.items())}"

    def replace(self, caller: Caller, tree: dict[str, Any], groups: list[dict[str, Any]]) -> tuple[str, list[str]]:
        """The tree and groups of nodes of a cluster file (admin); what was done, and what of it matches no node."""
        caller.must_be(Role.ADMIN)
        made = Tree.from_dict(tree, "cluster file")
        return self.take(caller, made, [NodeGroup(**_tuples(group)) for group in groups])

    def take(self, caller: Caller, tree: Tree, groups: Sequence[NodeGroup]) -> tuple[str, list[str]]:
        """The same of values."""
        nodes = self._machines.nodes()
        marks, wrong = matched(groups, nodes)
        with self._store.lock:
            self._write(caller, tree, replace(self._store.book.tenants, nodes=marks))
        count, marked = len(tree.tenants), len(marks)
        return f"{count} tenant{'s' * (count != 1)}; {marked} of {len(nodes)} nodes dedicated or labelled", wrong

    # -- checks --------------------------------------------------------------------------------------------------

    @property
    def _tree(self) -> Tree:
        return self._store.book.tenants.tree or Tree()

    def _one(self, name: str) -> Tenant:
        if name not in self._tree:
            raise NotFound(str(unknown("tenant", name, (one.name for one in self._tree.tenants))))
        return self._tree.of(name)

    def _write(self, caller: Caller, tree: Tree, before: BookTenants | None = None) -> None:
        """Journal another tree, if the caller may and it can be; `before` has the marks of nodes that go with it."""
        book = self._store.book
        old, base = self._tree, before or book.tenants
        check_rights(caller, old, tree)
        self._check_removed(old, tree, base)
        has = sum(node.gpus for node in self._machines.nodes())
        asked = tree.guaranteed("")
        if asked > max(has, old.guaranteed("")):
            raise InputError(f"tenants: {asked} GPUs would be guaranteed, but all nodes together have {has}: say less")
        new = replace(base, tree=tree, who=caller.name)
        if book.tenants.tree is None or new.entry() != {**book.tenants.entry(), "who": caller.name}:
            self._store.write([Entry("tenants", data=new.entry())])
            self._machines.wake()

    def _check_removed(self, old: Tree, new: Tree, base: BookTenants) -> None:
        for name in (tenant.name for tenant in old.tenants if tenant.name not in new):
            if count := sum(jobs for (tenant, _), jobs in self._store.book.unfinished.items() if tenant == name):
                jobs = "1 job that has" if count == 1 else f"{count} jobs that have"
                raise Conflict(f"tenant '{name}' has {jobs} not ended: let them end or cancel them first")
        for node, mark in base.nodes.items():
            for name in mark.dedicated:
                if name not in new:
                    raise Conflict(f"node {node} is dedicated to tenant '{name}': change that first, with --file")


def _merged(old: Tenant, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A tenant's fields as written, with some of them changed; None takes one away."""
    now = tenant_as_dict(old)
    for key, value in fields.items():
        if key in _IN_PARTS and isinstance(value, Mapping):
            parts = {**now.get(key, {}), **value}
            value = {name: part for name, part in parts.items() if part is not None}
        now[key] = value
    return {key: value for key, value in now.items() if value is not None}


def told(old: Tenant, new: Tenant) -> str:
    """What has changed, in words: `guaranteed 8 -> 16`."""
    before, after = tenant_as_dict(replace(old, parent="")), tenant_as_dict(new)
    before["parent"], after["parent"] = old.parent or None, new.parent or None
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return ", ".join(f"{key} {_word(before.get(key))} -> {_word(after.get(key))}" for key in keys) or "as it was"


def _word(value: Any) -> str:
    return "(default)" if value is None else str(value)


def _tuples(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group of nodes after a way through JSON."""
    lists = {name: tuple(group[name]) for name in ("dedicated", "names") if name in group}
    labels = {"labels": tuple((str(key), str(value)) for key, value in group["labels"])} if "labels" in group else {}
    return {**group, **lists, **labels}
