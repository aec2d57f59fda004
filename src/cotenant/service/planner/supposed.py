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

    def book(self, book: Book) -> Book:
        """The book as it would be; the real one is left alone. Nobody may change it meanwhile."""
        made = copy(book)
        new = {job.id: job for job in self.jobs}
        made.jobs, made.active = {**book.jobs, **new}, {**book.active, **new}
        made.touched, made.unseen, made.unplaced = set(), {}, set()
        made.tenants = book.tenants if self.tenants is None else self.tenants
        return made

    def view(self, view: BookView, book: Book) -> BookView:
        """The same of a picture of the book."""
        return BookView(book, {**view.jobs, **{job.id: job for job in self.jobs}})


NOTHING_ELSE = Supposed()
