"""The shared photographs go the whole way with the model that ships, without a hitch."""

from pathlib import Path

from paragrain import Collection, embed, evaluate, import_coco, load_encoder, search, train


def test_import_embed_train_evaluate_search(shared: Path, tmp_path: Path) -> None:
    photos = shared / "photos"
    report = import_coco(
        photos / "images", photos / "captions.json", tmp_path / "photos",
        texts=photos / "paragraphs.jsonl", progress=False,
    )  # fmt: skip
    assert (report.written, report.skipped) == (50, [])
    collection = Collection.open(tmp_path / "photos")
    blip0 = load_encoder("blip0", "cpu")
    assert len(embed(collection, blip0, progress=False).ids) == 50
    before = evaluate(collection, blip0, texts="paragraph", progress=False)
    for recipe in ("c5", "c7"):
        run = train(
            collection, blip0, recipe=recipe, out=tmp_path / recipe, max_steps=3, epochs=3,
            batch_size=25, learning_rate=1e-3, warmup_steps=0, progress=False,
        )  # fmt: skip
        after = evaluate(collection, run.encoder, texts="paragraph", progress=False)
        assert after.scores.images == before.scores.images == 50
        assert after.scores != before.scores
        hits = search(collection, run.encoder, "Two buses on a wet street.", progress=False)
        assert len({hit.id for hit in hits}) == 5
        assert all((photos / "images" / (hit.path or "")).is_file() for hit in hits)
