from collections import Counter

import pytest

from paragrain.collection import Record
from paragrain.errors import UsageError
from paragrain.training.supervision import Text, draw, load_recipe, parse_recipe, recipe_names

RECORD = Record(
    id="7",
    captions=["first", "second"],
    generated=["g1", "g2", "g3", "g4", "g5", "g6"],
    negatives=["n1", "n2", "n3"],
    paragraph="p",
    description="d",
)


RECIPES = {name: load_recipe(name) for name in recipe_names()}


def texts(name: str, record: Record = RECORD, *, seed: int = 0, epoch: int = 0) -> list[str]:
    return [t.text for t in draw(record, RECIPES[name], seed=seed, epoch=epoch).positives]


def test_all_ten_recipes_are_the_ones_of_the_study():
    assert recipe_names() == [f"c{n}" for n in range(1, 11)]
    g = ["g1", "g2", "g3", "g4", "g5"]
    fixed = {
        "c1": ["first"],
        "c4": ["p"],
        "c5": ["first", "p"],
        "c7": ["first"],
        "c8": ["first", *g],
        "c9": ["first", *g, "p"],
        "c10": [*g, "p"],
    }
    for name, expected in fixed.items():
        assert texts(name) == expected, name
    for name, before, after in (("c2", [], []), ("c3", ["first"], []), ("c6", ["first"], ["p"])):
        found = texts(name)
        assert found[: len(before)] == before
        assert found[len(before)] in RECORD.generated
        assert found[len(before) + 1 :] == after
    losses = [load_recipe(name).loss for name in recipe_names()]
    one, many = "InfoNCE", "multi-positive"
    assert losses == [one, one, many, one, many, many, "hard-negative", many, many, many]
    c7 = draw(RECORD, load_recipe("c7"), seed=0, epoch=0)
    assert c7.negatives == [Text("negatives", n) for n in ("n1", "n2", "n3")]
    inferred = [name for name in recipe_names() if "inferred" in load_recipe(name).note]
    assert inferred == ["c6", "c9", "c10"]


def test_random_picks_follow_seed_epoch_and_id_alone():
    assert texts("c2", epoch=3) == texts("c2", epoch=3)
    drawn = Counter(texts("c2", epoch=epoch)[0] for epoch in range(600))
    assert set(drawn) == set(RECORD.generated)
    assert min(drawn.values()) > 60  # about 100 each
    other_seed = [texts("c2", seed=1, epoch=e) for e in range(50)]
    assert other_seed != [texts("c2", epoch=e) for e in range(50)]
    twin = Record(id="8", generated=RECORD.generated)
    assert [texts("c2", twin, epoch=e) for e in range(50)] != [
        texts("c2", epoch=e) for e in range(50)
    ]


def test_missing_and_empty_texts_do_not_count():
    assert texts("c9", Record(id="1", captions=["", "  ", "a"], generated=["x"])) == ["a", "x"]
    assert texts("c5", Record(id="1", paragraph=" ")) == []
    assert texts("c2", Record(id="1")) == []


def test_a_negative_that_repeats_a_positive_is_dropped():
    record = Record(id="1", captions=["A red  star"], negatives=["a RED star", "a blue star"])
    assert [t.text for t in draw(record, load_recipe("c7"), seed=0, epoch=0).negatives] == [
        "a blue star"
    ]


def test_a_number_picks_the_first_n():
    for n in (1, 3, 5):
        recipe = parse_recipe(f"positives: [{{from: generated, pick: {n}}}]", "mine")
        found = draw(RECORD, recipe, seed=0, epoch=0).positives
        assert [t.text for t in found] == RECORD.generated[:n]


def test_own_recipes_by_path_with_or_without_a_name(tmp_path):
    bare = tmp_path / "bare.yaml"
    bare.write_text("positives: [{from: description}]\n")
    named = tmp_path / "file.yaml"
    named.write_text("c11:\n  title: mine\n  positives: [{from: captions}, {from: description}]\n")
    assert load_recipe(bare).name == "bare"
    assert load_recipe(bare).loss == "InfoNCE"
    recipe = load_recipe(str(named))
    assert (recipe.name, recipe.title, recipe.loss) == ("c11", "mine", "multi-positive")
    assert load_recipe(recipe) is recipe
    assert load_recipe("C5").name == "c5"
    again = parse_recipe(str(recipe.content()), "other")  # JSON-like, so YAML
    assert again == recipe


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("positives: [{from: caption}]", "'caption', which is no text field"),
        ("positives: [{from: captions, pick: some}]", "use first, random, all, or a number from 1"),
        ("positives: [{from: captions, pick: 0}]", "or a number from 1"),
        ("positives: [{from: captions, pick: true}]", "or a number from 1"),
        ("positives: [{from: captions, pik: all}]", "no setting 'positives.0.pik'"),
        ("positives: [{from: captions}]\npositive: 3", "no setting 'positive'"),
        ("positives: []", "positives"),
        ("positives: [{from: negatives}]", "wrong on purpose"),
        ("negatives: [{from: negatives}]\ntitle: x", "positives"),
        ("just words", "must hold"),
        ("a: [", "not valid YAML"),
        ("1: {2: 3}", "is not valid"),
        ("name: ../x\npositives: [{from: captions}]", "name"),
        ("", "must hold"),
    ],
)
def test_a_wrong_recipe_is_one_sentence(text, words, tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_recipe(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_recipes():
    with pytest.raises(UsageError, match=r"no recipe 'c77': use one of c1, c2"):
        load_recipe("c77")
