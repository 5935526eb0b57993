"""The first requests to a server: one at a time, until it is known to answer at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TURN_SECONDS = 2.0
"""So long the first requests wait for one another, so that a slow answer does not hold all back."""

SUSPECTS = 2
"""Calls that go on being asked while the server says of each that something is wrong."""


class Opening:
    """Holds requests back while it looks as if the server will answer none of them.

    Calls are known by a number of each.

    Attributes:
        answered: whether the server has answered a call; from then on nothing is held back.
        busy: whether a request failed without a word on what is wrong; then nothing is held back
            either.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.answered = self.busy = False
        self._under_way: object | None = None
        self._suspects: set[int] = set()
        self._news = asyncio.Event()

    @asynccontextmanager
    async def turn(self, call: int) -> AsyncIterator[None]:
        """One request of a call, when it may be sent."""
        while not self._may_go(call):
            await self._news.wait()
        self._under_way = request = object()

        def over() -> None:
            if self._under_way is request:
                self._under_way = None
                self._tell()

        timer = asyncio.get_running_loop().call_later(TURN_SECONDS, over)
        try:
            yield
        finally:
            timer.cancel()
            over()

    def answer(self) -> None:
        """Take note of an answer."""
        self.answered = True
        self._tell()

    def silence(self) -> None:
        """Take note that a request failed without a word: a server that is busy refuses nothing."""
        self.busy = True
        self._tell()

    def complaint(self, call: int) -> None:
        """Take note that the server finds something wrong with a call."""
        self._suspects.add(call)

    def end(self, call: int) -> None:
        """Take note that a call is over, whatever came of it."""
        self._suspects.discard(call)
        self._tell()

    def _may_go(self, call: int) -> bool:
        if self.answered or self.busy:
            return True
        known = call in self._suspects
        return self._under_way is None and (known or len(self._suspects) < SUSPECTS)

    def _tell(self) -> None:
        """Have all who wait look again."""
        self._news.set()
        self._news = asyncio.Event()
