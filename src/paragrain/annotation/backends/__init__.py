"""What can answer calls: servers, models in this process, and scenes that know the truth."""

import asyncio

from paragrain.annotation.backends.base import Backend
from paragrain.annotation.settings import BackendSettings

__all__ = ["Backend", "make_backend", "only_model"]


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
    from paragrain.annotation.backends.scenes import ScenesBackend

    return ScenesBackend(settings)


def only_model(endpoint: str | None, key_env: str = "OPENAI_API_KEY") -> str:
    """The name of the one model that a server offers, so that the user need not give it.

    Raises:
        UsageError: it offers none or several, or does not say.
    """
    from paragrain.annotation.backends import server

    return asyncio.run(server.only_model(endpoint, key_env))
