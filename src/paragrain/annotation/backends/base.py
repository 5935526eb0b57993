"""The interface of everything that answers calls."""

from typing import Protocol

from paragrain.annotation.calls import Call, Picture, Reply


class Backend(Protocol):
    """Answers questions about images; used within one event loop.

    Attributes:
        model: the model's name, as it stands in each annotation.
        in_flight: calls that it works on at once; the caller never has more under way.
        trouble: why calls are waiting just now, such as a busy server; empty if none is.
        notes: what the user should know of how it answers, such as options that a server refused.
    """

    model: str
    in_flight: int
    trouble: str
    notes: list[str]

    async def ask(self, call: Call, picture: Picture) -> Reply:
        """Answer one call; retries of what may pass happen in here.

        Raises:
            RequestFailed: there is no answer, and asking again now will not bring one.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
