"""A small world with image vectors of a tiny random BLIP."""

import pytest

from paragrain.collection import Collection
from paragrain.encoders import ImageTextEncoder, load_encoder
from paragrain.sources.scenes import import_scenes


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    folder = tmp_path_factory.mktemp("evaluation") / "world"
    import_scenes(folder, size=30, seed=1, show=False)
    return Collection.open(folder)


@pytest.fixture(scope="session")
def encoder(random_blip) -> ImageTextEncoder:
    return load_encoder(random_blip, "cpu")
