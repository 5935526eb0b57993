"""A small world to pre-train on."""

import pytest

from paragrain.collection import Collection
from paragrain.sources.scenes import import_scenes


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    folder = tmp_path_factory.mktemp("pretraining") / "world"
    import_scenes(folder, size=24, seed=2, progress=False)
    return Collection.open(folder)
