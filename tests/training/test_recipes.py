from collections import Counter

import pytest

from paragrain.collection import Record
from paragrain.errors import UsageError
from paragrain.training.recipes import load_recipe, parse_recipe, recipe_names
from paragrain.training.sampling import Text, draw

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
        recipe = parse_recipe(f"positives: [{{from: generated, select: {n}}}]", "mine")
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
        (
            "positives: [{from: captions, select: some}]",
            "use first, random, all, or a number from 1",
        ),
        ("positives: [{from: captions, select: 0}]", "or a number from 1"),
        ("positives: [{from: captions, select: true}]", "or a number from 1"),
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


def mine(text: str):
    return parse_recipe(text, "mine")


def records(count: int) -> list[Record]:
    return [Record(id=f"{n}.jpg", captions=["c"], paragraph="p") for n in range(count)]


def test_shares_are_nested_and_the_same_in_every_recipe_seed_and_epoch():
    def taught(
        share: float, *, seed: int = 0, epoch: int = 0, field: str = "paragraph"
    ) -> set[str]:
        recipe = mine(f"positives: [{{from: {field}, share: {share}}}]")
        return {r.id for r in records(2000) if draw(r, recipe, seed=seed, epoch=epoch).positives}

    shares = {share: taught(share) for share in (0.25, 0.5, 0.75, 1)}
    assert shares[0.25] < shares[0.5] < shares[0.75] < shares[1]
    for share, ids in shares.items():
        assert len(ids) == pytest.approx(2000 * share, abs=2000 * 0.03)
    assert taught(0.25, seed=5, epoch=3, field="captions") == shares[0.25]


def test_a_share_of_one_pick_leaves_the_other_whole():
    both = mine("positives: [{from: captions, share: 0.25}, {from: paragraph, share: 0.25}]")
    one = mine("positives: [{from: captions}, {from: paragraph, share: 0.25}]")
    counts = Counter(len(draw(r, both, seed=0, epoch=0).positives) for r in records(400))
    assert set(counts) == {0, 2}
    assert Counter(len(draw(r, one, seed=0, epoch=0).positives) for r in records(400)) == {
        1: counts[0],
        2: counts[2],
    }


def test_joined_captions_are_one_text_with_the_budget_of_a_paragraph():
    recipe = mine("positives: [{from: generated, select: 3, join: true, max_length: paragraph}]")
    assert draw(RECORD, recipe, seed=0, epoch=0).positives == [Text("paragraph", "g1. g2. g3.")]
    assert draw(Record(id="1"), recipe, seed=0, epoch=0).positives == []
    assert (recipe.loss, recipe.fields, recipe.max_lengths) == (
        "InfoNCE",
        ("generated",),
        ("paragraph",),
    )


def test_a_negative_that_repeats_a_joined_positive_is_dropped():
    recipe = mine(
        "positives: [{from: captions, join: true, max_length: paragraph}]\n"
        "negatives: [{from: negatives}]"
    )
    record = Record(id="1", captions=["a red star", "a moon"], negatives=["A moon.", "a sun"])
    assert [t.text for t in draw(record, recipe, seed=0, epoch=0).negatives] == ["a sun"]


@pytest.mark.parametrize("order", ["sentences", "words"])
def test_a_random_order_follows_seed_epoch_and_id_alone(order):
    recipe = mine(f"positives: [{{from: paragraph, order: {order}}}]")
    text = "one two three four five. six seven eight nine. ten eleven twelve. more of it here."

    def told(id: str = "7", *, seed: int = 0, epoch: int = 0) -> str:
        record = Record(id=id, paragraph=text)
        return draw(record, recipe, seed=seed, epoch=epoch).positives[0].text

    assert told() == told()
    assert len({told(epoch=epoch) for epoch in range(20)}) > 10
    assert len({told(seed=seed) for seed in range(20)}) > 10
    assert len({told(str(id)) for id in range(20)}) > 10
    assert sorted(told().replace(".", "").split()) == sorted(text.replace(".", "").split())


def test_three_captions_and_three_negatives():
    recipe = mine(
        "positives: [{from: generated, select: 3}]\nnegatives: [{from: negatives, select: 3}]"
    )
    assert recipe.loss == "hard-negative"
    record = Record(
        id="1", generated=["g1", "g2", "g3", "g4"], negatives=["n1", "n2", "n3", "n4", "n5"]
    )
    found = draw(record, recipe, seed=0, epoch=0)
    assert [t.text for t in found.positives] == ["g1", "g2", "g3"]
    assert [t.text for t in found.negatives] == ["n1", "n2", "n3"]


def test_recipes_come_back_from_plain_data_without_what_is_as_usual():
    new = mine(
        "positives: [{from: captions, share: 0.5, join: true, max_length: paragraph, order: words}]"
    )
    assert new.content()["positives"] == [
        {
            "from": "captions",
            "share": 0.5,
            "join": True,
            "order": "words",
            "max_length": "paragraph",
        }
    ]
    assert parse_recipe(str(new.content()), "other") == new
    assert load_recipe("c3").content()["positives"] == [
        {"from": "captions", "select": "first"},
        {"from": "generated", "select": "random"},
    ]


@pytest.mark.parametrize(
    ("pick", "words"),
    [
        ("share: 0", "use a number above 0 and up to 1"),
        ("share: 25", "use a number above 0 and up to 1"),
        ("share: true", "use a number above 0 and up to 1"),
        ("share: .nan", "use a number above 0 and up to 1"),
        ("join: true", "add max_length: paragraph"),
        ("join: all", "use true or false"),
        ("order: letters", "use sentences or words"),
        ("max_length: 128", "which is no text field"),
    ],
)
def test_a_wrong_change_is_one_sentence(pick, words):
    with pytest.raises(UsageError) as caught:
        mine(f"positives: [{{from: captions, {pick}}}]")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
