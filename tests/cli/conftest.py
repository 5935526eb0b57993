"""The command line run in this process."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paragrain.cli import main
from paragrain.sources.scenes import import_scenes


@dataclass
class Outcome:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object that it must be."""
        return json.loads(self.out)


@pytest.fixture
def paragrain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run `paragrain ARGS` and tell how it ended."""

    def run(*args: object) -> Outcome:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["paragrain", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        said = capsys.readouterr()
        return Outcome(code if isinstance(code, int) else int(bool(code)), said.out, said.err)

    return run


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "world"
    import_scenes(folder, size=24, seed=3, show=False)
    return folder
