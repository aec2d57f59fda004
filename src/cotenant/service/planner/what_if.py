"""What is supposed to be otherwise than it is: jobs that nobody has submitted, more nodes, other tenants."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from cotenant.backends.base import NodeInfo
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob
from cotenant.service.store.tenants import BookTenants
from cotenant.service.store.view import BookView


@dataclass(frozen=True, slots=True)
class Supposed:
    """A book and nodes are as they are but for this. `tenants`: None for as they are."""

    jobs: tuple[LiveJob, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    tenants: BookTenants | None = None

    def applied(self, book: Book, view: BookView) -> tuple[Book, BookView]:
        """Book and view as they would be; the real ones are left alone. Nobody may change the book meanwhile."""
        if self is NOTHING_ELSE:
            return book, view
        made = copy(book)
        new = {job.id: job for job in self.jobs}
        made.jobs, made.active = {**book.jobs, **new}, {**book.active, **new}
        made.touched, made.unseen, made.unplaced = set(), {}, set()
        made.tenants = book.tenants if self.tenants is None else self.tenants
        return made, BookView(made, {**view.jobs, **new})


NOTHING_ELSE = Supposed()
