"""The ticket of a wait."""

import re
from functools import total_ordering

from luagate.settings import refuse

TEXT = re.compile("[1-9][0-9]{0,15}")


@total_ordering
class Ticket:
    """A place in line. Of two waiters, the one with the smaller ticket is served first.

    `str(ticket)` is its text, which can be stored. `Ticket(text)` is the same ticket. It is no number.
    """

    __slots__ = ("_number",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not TEXT.fullmatch(text):
            refuse("ticket", text, "the text of a ticket, str(permit.ticket)")
        self._number = int(text)

    def __str__(self) -> str:
        return str(self._number)

    def __repr__(self) -> str:
        return f"Ticket('{self}')"

    def __eq__(self, other: object) -> bool:
        return self._number == other._number if isinstance(other, Ticket) else NotImplemented

    def __lt__(self, other: "Ticket") -> bool:
        return self._number < other._number if isinstance(other, Ticket) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._number)


def given(number: int) -> Ticket:
    """The ticket in a reply."""
    ticket = Ticket.__new__(Ticket)
    ticket._number = number
    return ticket
