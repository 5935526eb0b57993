"""An annotated collection is all that the ten recipes need."""

from pathlib import Path

import pytest

from paragrain.annotation import AnnotationSettings, BackendSettings, SceneErrors, annotate
from paragrain.collection import Collection
from paragrain.encoders import load_encoder
from paragrain.sources import import_scenes
from paragrain.training import load_recipe, train


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """Scenes whose texts, all but the alt-texts, an annotator wrote anew."""
    folder = tmp_path_factory.mktemp("annotated") / "world"
    import_scenes(folder, size=12, seed=5, progress=False)
    before = {r.id: r for r in Collection.open(folder).records("train")}
    model = BackendSettings(
        backend="scenes", model="scenes", errors=SceneErrors(false_caption=0.1, short_list=0.1)
    )
    settings = AnnotationSettings(generator=model, judge=model, replace=True)
    report = annotate(Collection.open(folder), settings, split="train", progress=False)
    assert (report.complete, report.changed) == (12, 12)
    after = Collection.open(folder)
    for record in after.records("train"):
        assert record.captions == before[record.id].captions
        assert record.generated != before[record.id].generated
    return after


@pytest.mark.parametrize("name", [f"c{number}" for number in range(1, 11)])
def test_every_recipe_trains_on_it(
    annotated: Collection, random_blip: Path, tmp_path: Path, name: str
) -> None:
    encoder = load_encoder(random_blip, "cpu")
    run = train(
        annotated, encoder, recipe=name, out=tmp_path / name, epochs=1, batch_size=6, progress=False
    )
    records = list(annotated.records("train"))
    assert all(record.texts(field) for record in records for field in load_recipe(name).fields)
    losses = [line["loss"] for line in run.history if "loss" in line]
    assert len(losses) == 2
