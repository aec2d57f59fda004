"""Who may change what of the tree: operators everything, a tenant's administrators what is inside it.

An administrator is named in `admins` of a tenant and looks after it and all below it. His token's tenant has to be on
the way from the root to it, or below it: a namesake in another branch of the tree is somebody else.
"""

from __future__ import annotations

from cotenant.core.tenants import Tenant, Tree
from cotenant.service.facade import Caller, NotAllowed, Role

OWN = ("limits", "default_priority")  # what an administrator may change of his tenant itself
BELOW = (*OWN, "guaranteed", "guaranteed_by_type", "weight", "ceiling", "lend", "borrow", "preempts",
         "highest_priority", "admins")  # fmt: skip
_NAMES = {"cpus": "cpu", "mem_gib": "mem"}


def administered(tree: Tree | None, caller: Caller) -> frozenset[str]:
    """Tenants whose jobs somebody looks after."""
    if tree is None or caller.role is not Role.USER:
        return frozenset()
    tops = set(_tops(tree, caller))
    return frozenset(one.name for one in tree.tenants if tops & {*tree.path(one.name)}) if tops else frozenset()


def _tops(tree: Tree, caller: Caller) -> list[str]:
    """The tenants that name him."""
    if not caller.tenant:
        return []
    named = (tenant.name for tenant in tree.tenants if caller.name in tenant.admins)
    mine = set(tree.path(caller.tenant))
    return [name for name in named if name in mine or caller.tenant in tree.path(name)]


def check_rights(caller: Caller, old: Tree, new: Tree) -> None:
    """Raise unless somebody may make this tree of that."""
    if caller.role is Role.ADMIN:
        return
    tops = _tops(old, caller) if caller.role is Role.USER else []
    for name in dict.fromkeys(tenant.name for tenant in (*old.tenants, *new.tenants)):
        was, will = (tree.of(name) if name in tree else None for tree in (old, new))
        if was == will:
            continue
        inside = [top for top in tops if _below(old, was, top) and _below(new, will, top)]
        if inside:
            _check_fields(name, was, will, BELOW)
        elif name in tops and was is not None and will is not None:
            _check_fields(name, was, will, OWN)
        else:
            raise NotAllowed(
                f"tenant '{name}' is not yours to change: that needs an admin, or one of its administrators"
            )
    for top in tops:
        if top in new and new.guaranteed(top) != old.guaranteed(top):
            has = f"{old.guaranteed(top)} GPUs are guaranteed to '{top}'"
            raise NotAllowed(f"{has}: only an admin changes that, and its children have their part of it")


def _below(tree: Tree, tenant: Tenant | None, top: str) -> bool:
    """Whether a tenant is below another; one that is not there is nowhere else."""
    return tenant is None or top in tree.path(tenant.name)[1:]


def _check_fields(name: str, was: Tenant | None, will: Tenant | None, allowed: tuple[str, ...]) -> None:
    if was is None or will is None:
        was = was or Tenant(name, will.parent if will else "")
        will = will or was
    fields = [field for field in Tenant.__dataclass_fields__ if getattr(was, field) != getattr(will, field)]
    for field in fields:
        moved = field == "parent" and allowed is BELOW  # within the subtree: that was looked at
        if field not in allowed and not moved:
            raise NotAllowed(f"field '{_NAMES.get(field, field)}' of tenant '{name}' is for an admin to change")
