"""What can answer calls: servers, models in this process, and scenes that know the truth."""

import asyncio
from typing import Protocol

from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.pictures import PreparedImage
from paragrain.annotation.settings import BackendSettings

__all__ = ["Backend", "make_backend", "only_model"]


class Backend(Protocol):
    """Answers questions about images; used within one event loop.

    Attributes:
        max_concurrency: calls that it works on at once; the caller never has more under way.
        stall_reason: why calls are waiting just now, such as a busy server; empty if none is.
        notes: what the user should know of how it answers, such as options that a server refused.
    """

    max_concurrency: int
    stall_reason: str
    notes: list[str]

    async def ask(self, call: Call, picture: PreparedImage) -> Reply:
        """Answer one call; retries after transient failures happen in here.

        Raises:
            RequestFailed: there is no answer, and asking again now will not bring one.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...


def make_backend(settings: BackendSettings) -> Backend:
    """The backend that some settings ask for, ready to be used within an event loop.

    Raises:
        UsageError: a key, a model or a library that it needs is missing.
    """
    if settings.backend == "openai":
        from paragrain.annotation.backends.server import ServerBackend

        return ServerBackend(settings)
    if settings.backend == "transformers":
        from paragrain.annotation.backends.local import LocalBackend

        return LocalBackend(settings)
    from paragrain.annotation.simulator import ScenesBackend

    return ScenesBackend(settings)


def only_model(endpoint: str | None, key_env: str = "OPENAI_API_KEY") -> str:
    """The name of the one model that a server offers, so that the user need not give it.

    Raises:
        UsageError: it offers none or several, or does not say.
    """
    from paragrain.annotation.backends import server

    return asyncio.run(server.only_model(endpoint, key_env))
