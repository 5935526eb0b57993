"""A small world for the command line."""

from pathlib import Path

import pytest

from paragrain.sources.scenes import import_scenes


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "world"
    import_scenes(folder, size=24, seed=3, progress=False)
    return folder
