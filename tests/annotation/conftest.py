"""The stub server, for everything that asks a model over HTTP."""

import importlib.util
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .photos import make_photos

# Helpers and a program of its own, whose parts import each other by name.
collect_ignore = ["asking.py", "stub.py", "stub_answers.py", "stub_server.py"]


def _load(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"annotation_{name}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def stub_server() -> Iterator[Any]:
    """The one server process of a session; tests take `stub`."""
    server = _load("stub").Stub().start()
    yield server
    server.stop()


@pytest.fixture
def stub(stub_server: Any) -> Any:
    """A server without faults that has counted nothing yet; see `Stub` in stub.py."""
    stub_server.script()
    return stub_server


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Calls and ways to ask them, see asking.py; retries come quickly and there is a key."""
    helpers = _load("asking")
    monkeypatch.setattr("paragrain.annotation.backends.server.FIRST_WAIT", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", helpers.KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    # Reading the system's certificates takes a client 60 ms; loopback needs none.
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
    return helpers


@pytest.fixture
def unused_port() -> int:
    """A port of this machine that nobody listens to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("original"), 8)


@pytest.fixture
def photos(original: Path, tmp_path: Path) -> Path:
    """Eight pictures of noise that nobody has annotated."""
    return Path(shutil.copytree(original, tmp_path / "photos"))
