"""The tree of tenants: what each is guaranteed, its weight, ceiling, loans and limits of its users.

This is what people say; who may claim what follows in `cotenant.tenancy`. Numbers of a tenant are its own and its
children's together. `docs/tenants.md` is the page for users.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cotenant.core import reading
from cotenant.core.errors import InputError, unknown
from cotenant.core.jobspec import read_seconds

DEFAULT = "default"  # the tenant under which tenants stand that nobody declared
_LONGEST_NAME = 200
_NOT_INHERITED = ("guaranteed", "guaranteed_by_type", "cpus", "mem_gib", "weight", "ceiling", "lend", "borrow")
_EXAMPLE = "{vision: {guaranteed: 32}, nlp: {guaranteed: 32, weight: 2}}"


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The most that each user of a tenant may have; None: no limit."""

    running_jobs: int | None = None
    gpus: int | None = None
    pending_jobs: int | None = None
    submits_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody who shares the cluster. `parent` is "" for those at the top; names are unique in the tree."""

    name: str
    parent: str = ""
    guaranteed: int = 0  # GPUs; of a tenant with children at least the sum of theirs, also where it says 0
    guaranteed_by_type: tuple[tuple[str, int], ...] = ()  # for jobs that name the type; part of `guaranteed`
    cpus: float = math.inf  # most cores that it may hold
    mem_gib: float = math.inf  # most host memory
    weight: float = 1.0  # its part of what is not guaranteed to anybody, against its siblings'
    ceiling: int | None = None  # most GPUs
    lend: int | None = None  # most of its guarantee that others may use meanwhile; None: all
    borrow: int | None = None  # most beyond its guarantee; None: up to the ceiling
    preempts: bool = True  # higher priority may displace lower inside it
    reclaims: bool = True  # its guarantee is taken back by preemption
    only_dedicated: bool = False  # never on nodes that are dedicated to nobody
    limits: UserLimits = field(default_factory=UserLimits)  # per user
    default_priority: int = 0
    highest_priority: int | None = None
    admins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """All tenants, parents before their children and siblings in the order in which they were given."""

    tenants: tuple[Tenant, ...] = ()
    half_life_s: float = math.inf  # after which past use counts half; infinity: only what is held now counts
    min_run_s: float = 60.0  # a job on borrowed GPUs runs at least so long before it has to leave
    reserve_after_s: float = 600.0  # after so long a gang that does not fit keeps borrowers off its GPUs

    _by_name: dict[str, Tenant] = field(init=False, repr=False, compare=False)
    _below: dict[str, list[Tenant]] = field(init=False, repr=False, compare=False)
    _has: dict[str, int] = field(init=False, repr=False, compare=False)  # GPUs guaranteed, with those of children

    def __post_init__(self) -> None:
        by_name = _by_name(self.tenants)
        below: dict[str, list[Tenant]] = {}
        for tenant in self.tenants:
            below.setdefault(tenant.parent, []).append(tenant)
        in_order = tuple(_in_order(below, ""))
        if len(in_order) < len(self.tenants):
            lost = next(tenant for tenant in self.tenants if tenant not in in_order)
            raise InputError(f"tenant '{lost.name}': field 'parent' is '{lost.parent}', which is below it")
        has: dict[str, int] = {}
        for tenant in reversed(in_order):
            has[tenant.name] = _check_numbers(tenant, sum(has[child.name] for child in below.get(tenant.name, ())))
        if not self.half_life_s > 0:
            raise InputError(f"fair_share.half_life is {self.half_life_s}; it must be a positive time")
        for name, value in (("tenants", in_order), ("_by_name", by_name), ("_below", below), ("_has", has)):
            object.__setattr__(self, name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def of(self, name: str) -> Tenant:
        """A tenant. One that nobody declared stands under `default`, if that is there, with its limits of users."""
        if name in self._by_name:
            return self._by_name[name]
        if DEFAULT not in self._by_name:
            return Tenant(name)
        like = self._by_name[DEFAULT]
        plain = Tenant(name, DEFAULT)
        return replace(like, name=name, parent=DEFAULT, **{field: getattr(plain, field) for field in _NOT_INHERITED})

    def path(self, name: str) -> tuple[str, ...]:
        """The tenant and those above it, nearest first."""
        names = [name]
        above = self.of(name).parent
        while above:
            names.append(above)
            above = self._by_name[above].parent
        return tuple(names)

    def children(self, name: str = "") -> tuple[Tenant, ...]:
        """The declared children of a tenant, or who stands at the top."""
        return tuple(self._below.get(name, ()))

    def guaranteed(self, name: str) -> int:
        """GPUs that a tenant and its children are guaranteed together; of "" those of the whole tree."""
        return self._has.get(name, 0) if name else sum(self._has[tenant.name] for tenant in self.children())

    def with_(self, tenant: Tenant) -> Tree:
        """The tree with this tenant, new or in the place of the one with its name."""
        if tenant.name not in self:
            return replace(self, tenants=(*self.tenants, tenant))
        return replace(self, tenants=tuple(tenant if old.name == tenant.name else old for old in self.tenants))

    def without(self, name: str) -> Tree:
        """The tree without a tenant, which must have no children."""
        if name not in self:
            raise unknown("tenant", name, (tenant.name for tenant in self.tenants))
        if below := self.children(name):
            raise InputError(f"tenant '{name}' has children ({below[0].name}): remove them first")
        return replace(self, tenants=tuple(tenant for tenant in self.tenants if tenant.name != name))

    def as_dict(self) -> dict[str, Any]:
        """What `from_dict` reads: only what differs from the defaults."""
        plain = Tree()
        share = {key: getattr(self, name) for key, name in _SHARE.items()}
        share = {key: value for key, value in share.items() if value != getattr(plain, _SHARE[key])}
        return ({"fair_share": share} if share else {}) | {"tenants": _nested(self, "")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> Tree:
        """Read `fair_share` and `tenants` of a cluster file, a record or a request; `where` leads every complaint."""
        reading.known(where, data, ("fair_share", "tenants"))
        share = reading.mapping(f"{where}: fair_share", data.get("fair_share") or {}, "{half_life: 7d}")
        reading.known(f"{where}: fair_share", share, _SHARE)
        times = {
            _SHARE[key]: math.inf if value == math.inf else read_seconds(value, f"fair_share.{key}", where)
            for key, value in share.items()
        }
        tenants = _read_children(f"{where}: tenants", data.get("tenants") or {}, "")
        try:
            return cls(tuple(tenants), **times)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


def tenant_from_dict(name: str, parent: str, data: Any, where: str) -> Tenant:
    """One tenant without its children; `where` is its place."""
    data = reading.mapping(where, data, "{guaranteed: 32, weight: 2}")
    reading.known(where, data, (*_READ, "children"))
    values: dict[str, Any] = {}
    for key, (name_, read) in _READ.items():
        if data.get(key) is not None:
            values[name_] = read(f"{where}.{key}", data[key])
    return Tenant(name, parent, **values)


def tenant_as_dict(tenant: Tenant) -> dict[str, Any]:
    """Its fields but name and parent, as they are written; only those that differ from the defaults."""
    given = {key: getattr(tenant, name) for key, (name, _) in _READ.items()}
    plain = Tenant("")
    data = {key: value for key, value in given.items() if value != getattr(plain, _READ[key][0])}
    if "guaranteed_by_type" in data:
        data["guaranteed_by_type"] = dict(data["guaranteed_by_type"])
    if "limits" in data:
        limits = {key: getattr(tenant.limits, key) for key in _LIMITS}
        data["limits"] = {key: value for key, value in limits.items() if value is not None}
    if "admins" in data:
        data["admins"] = list(data["admins"])
    return data


def _by_type(where: str, value: Any) -> tuple[tuple[str, int], ...]:
    found = reading.mapping(where, value, "{h200: 16}")
    return tuple((reading.text(where, kind), reading.whole(f"{where}.{kind}", gpus, 0)) for kind, gpus in found.items())


def _limits(where: str, value: Any) -> UserLimits:
    found = reading.mapping(where, value, "{gpus: 16, pending_jobs: 100}")
    reading.known(where, found, _LIMITS)
    return UserLimits(
        **{key: _LIMITS[key](f"{where}.{key}", value) for key, value in found.items() if value is not None}
    )


_COUNT = partial(reading.whole, low=0)
_LIMITS: dict[str, Any] = {
    "running_jobs": _COUNT, "gpus": _COUNT, "pending_jobs": _COUNT, "submits_per_hour": reading.amount,
}  # fmt: skip
_READ: dict[str, tuple[str, Any]] = {
    "guaranteed": ("guaranteed", _COUNT),
    "guaranteed_by_type": ("guaranteed_by_type", _by_type),
    "cpu": ("cpus", reading.amount),
    "mem": ("mem_gib", reading.amount),
    "weight": ("weight", reading.amount),
    "ceiling": ("ceiling", _COUNT),
    "lend": ("lend", _COUNT),
    "borrow": ("borrow", _COUNT),
    "preempts": ("preempts", reading.yes),
    "reclaims": ("reclaims", reading.yes),
    "only_dedicated": ("only_dedicated", reading.yes),
    "limits": ("limits", _limits),
    "default_priority": ("default_priority", partial(reading.whole, low=-(10**9))),
    "highest_priority": ("highest_priority", partial(reading.whole, low=-(10**9))),
    "admins": ("admins", reading.names),
}
_SHARE = {"half_life": "half_life_s", "min_run": "min_run_s", "reserve_after": "reserve_after_s"}


def _read_children(where: str, data: Any, parent: str) -> list[Tenant]:
    found = []
    for key, value in reading.mapping(where, data, _EXAMPLE).items():
        name = reading.text(where, key)
        value = {} if value is None else value
        found.append(tenant_from_dict(name, parent, value, f"{where}.{name}"))
        found += _read_children(f"{where}.{name}.children", value.get("children") or {}, name)
    return found


def _nested(tree: Tree, name: str) -> dict[str, Any]:
    found = {}
    for tenant in tree.children(name):
        below = _nested(tree, tenant.name)
        found[tenant.name] = tenant_as_dict(tenant) | ({"children": below} if below else {})
    return found


def _by_name(tenants: tuple[Tenant, ...]) -> dict[str, Tenant]:
    found: dict[str, Tenant] = {}
    for tenant in tenants:
        if not tenant.name or not tenant.name.isprintable() or len(tenant.name) > _LONGEST_NAME:
            raise InputError(f"tenant {tenant.name[:50]!r}: a name has 1 to {_LONGEST_NAME} printable characters")
        if tenant.name in found:
            raise InputError(f"tenant '{tenant.name}' is there twice: names are unique in the whole tree")
        found[tenant.name] = tenant
    for tenant in tenants:
        if tenant.parent and tenant.parent not in found:
            raise InputError(f"tenant '{tenant.name}': field 'parent': {unknown('tenant', tenant.parent, found)}")
    return found


def _in_order(below: Mapping[str, list[Tenant]], parent: str) -> Iterator[Tenant]:
    for tenant in below.get(parent, ()):
        yield tenant
        yield from _in_order(below, tenant.name)


def _check_numbers(tenant: Tenant, below: int) -> int:
    """The GPUs that it is guaranteed, given those of its children."""
    at = f"tenant '{tenant.name}'"
    for kind in ("guaranteed", "ceiling", "lend", "borrow"):
        if (getattr(tenant, kind) or 0) < 0:
            raise InputError(f"{at}: {kind} is {getattr(tenant, kind)}; it must be at least 0")
    typed = sum(gpus for _, gpus in tenant.guaranteed_by_type)
    for whose, gpus in (("children are", below), ("GPU types are", typed)):
        if 0 < tenant.guaranteed < gpus:
            short = f"guaranteed is {tenant.guaranteed}, but its {whose} guaranteed {gpus}"
            raise InputError(f"{at}: {short}: raise it to {gpus}, or lower theirs")
    has = max(tenant.guaranteed, below, typed)
    if tenant.ceiling is not None and tenant.ceiling < has:
        raise InputError(f"{at}: ceiling is {tenant.ceiling}, below the {has} GPUs that it is guaranteed")
    if not 0 < tenant.weight < math.inf:
        raise InputError(f"{at}: weight is {tenant.weight}; it must be a positive number")
    if tenant.highest_priority is not None and tenant.default_priority > tenant.highest_priority:
        raise InputError(
            f"{at}: default_priority is {tenant.default_priority}, above highest_priority {tenant.highest_priority}"
        )
    return has
