"""Names that differ only in a number or a few letters are one kind of job (Helios, SC'21, section 4.2.2).

Numbers are masked, then a name joins the most similar kind seen before if the share of matching letters
(sequence matching, as in the released code) is at least 0.6, else it founds a kind of its own. Kinds are given out
in the order in which names appear, so that a later name never changes an earlier kind.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

NO_NAME = -1
SIMILAR = 0.6
MOST_KINDS = 256

_NUMBER = re.compile(r"\d+")


class NameKinds:
    """Kinds by name; at most `MOST_KINDS`, after which a name joins the most similar one whatever it is."""

    def __init__(self) -> None:
        self._kind_of: dict[str, int] = {"": NO_NAME}
        self._first: list[str] = []

    def kind(self, name: str) -> int:
        """Number of the kind, or `NO_NAME` for an empty name."""
        masked = _NUMBER.sub("0", name.strip().lower())
        if masked not in self._kind_of:
            self._kind_of[masked] = self._nearest(masked)
        return self._kind_of[masked]

    def _nearest(self, name: str) -> int:
        full = len(self._first) >= MOST_KINDS
        best, at_least = -1, 0.0 if full else SIMILAR
        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(name)
        for kind, other in enumerate(self._first):
            matcher.set_seq1(other)
            if matcher.real_quick_ratio() < at_least or matcher.quick_ratio() < at_least:
                continue
            ratio = matcher.ratio()
            if ratio > at_least or (best < 0 and ratio == at_least):
                best, at_least = kind, ratio
        if best < 0:
            self._first.append(name)
            return len(self._first) - 1
        return best
