"""The operator's report: what a log says of a cluster, question by question, and what could be done about it.

`analyze` gives plain data (numbers, texts, lists, dicts), the JSON of `cotenant analyze`; `report/` makes pages of it.
One module per question. The log is a lazy table (`table.py`), so that one that does not fit in memory works too.
"""

from cotenant.analysis.analyze import analyze
from cotenant.analysis.table import JobTable, gather

__all__ = ["JobTable", "analyze", "gather"]
