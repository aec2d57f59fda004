"""Which operating-system user a tenant is: one that a file names, or a number of our own, the same for ever."""

from __future__ import annotations

import fcntl
import grp
import json
import os
import pwd
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cotenant.core.errors import InputError

MOST_USERS = 60_000
GROUPS_BELOW = 1_000  # below the first user's number: groups of GPUs


@dataclass(frozen=True, slots=True)
class TenantUser:
    """A tenant's user. `home` is '' where the service makes it one."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = ""


class Users:
    """Accounts by tenant. Numbers given out are on disk before they are used, and never given to another."""

    def __init__(self, path: Path, first_uid: int, user_map: str = "") -> None:
        self._path, self._first = path, first_uid
        self._mapped = read_user_map(Path(user_map)) if user_map else {}
        self._uids = _read_uids(path) if path.exists() else {}
        self._lock = threading.Lock()

    def of(self, tenant: str) -> TenantUser:
        """The tenant's account; one that is new gets the next number."""
        if tenant in self._mapped:
            return self._mapped[tenant]
        with self._lock:
            if tenant not in self._uids:
                with _alone(self._path):  # another service may give numbers out, too
                    self._uids = _read_uids(self._path) if self._path.exists() else {}
                    if tenant not in self._uids:
                        self._add(tenant)
            uid = self._uids[tenant]
        return TenantUser(tenant, uid, uid)

    def _add(self, tenant: str) -> None:
        uid = max((self._first - 1, *self._uids.values())) + 1
        while _is_taken(uid):
            uid += 1
        if uid >= self._first + MOST_USERS:
            raise InputError(f"tenant '{tenant}': all {MOST_USERS} user numbers from {self._first} on are given out")
        uids = {**self._uids, tenant: uid}
        temporary = self._path.with_suffix(".new")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(uids, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
        self._uids = uids


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Whoever else wants to change this file waits."""
    held = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _read_uids(path: Path) -> dict[str, int]:
    try:
        return {str(tenant): int(uid) for tenant, uid in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError) as error:
        fix = "restore it: the owners of tenants' files are in it"
        raise InputError(f"{path} does not say which tenant is which user ({error}): {fix}") from error


def _is_taken(number: int) -> bool:
    for ask in (pwd.getpwuid, grp.getgrgid):
        try:
            ask(number)
        except KeyError:
            continue
        return True
    return False


def read_user_map(path: Path) -> dict[str, TenantUser]:
    """Lines of `TENANT USER`; what follows a # is not read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--user-map {path}: {error}") from error
    found: dict[str, TenantUser] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"--user-map {path}, line {number}"
        if len(words) != 2:
            raise InputError(f"{where}: write a tenant and a user, e.g. vision alice")
        tenant, user = words
        if tenant in found:
            raise InputError(f"{where}: tenant '{tenant}' is named twice")
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            raise InputError(f"{where}: there is no user '{user}' on this machine") from None
        if entry.pw_uid == 0:
            raise InputError(f"{where}: '{user}' is root, who cannot be kept apart from anybody")
        if any(other.uid == entry.pw_uid for other in found.values()):
            raise InputError(f"{where}: '{user}' is another tenant already: one user cannot be kept apart from himself")
        groups = tuple(group for group in os.getgrouplist(user, entry.pw_gid) if group != 0)
        found[tenant] = TenantUser(user, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)
    return found
