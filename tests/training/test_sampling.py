import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paragrain.training.sampling import joined, scrambled
from paragrain.words import sentences

TEXT = (
    "there is a red circle, left of it a star . below it is green! is 2.5 m the 'size' of it? "
    'it says "stop." the last one (of four) is a square'
)
SENTENCES = st.lists(
    st.lists(st.sampled_from(["a", "red", "star,", "(big)", "2.5"]), min_size=1).map(" ".join),
    min_size=1,
    max_size=5,
).map(lambda parts: " ".join(part + end for part, end in zip(parts, "!.?..", strict=False)))


@given(SENTENCES, st.integers(0, 2**32))
def test_scrambled_sentences_are_the_same_sentences(text, seed):
    found = scrambled(text, "sentences", random.Random(seed))
    assert Counter(sentences(found)) == Counter(sentences(text))


@given(SENTENCES, st.integers(0, 2**32))
def test_scrambled_words_stay_in_their_sentence_and_its_end_stays(text, seed):
    found = scrambled(text, "words", random.Random(seed))
    before, after = sentences(text), sentences(found)
    assert len(before) == len(after)
    for one, two in zip(before, after, strict=True):
        assert one[-1] == two[-1]
        assert Counter(one[:-1].split()) == Counter(two[:-1].split())


def test_the_tokens_are_the_same_in_another_order(encoder):
    (before,) = encoder.token_ids([TEXT + "."])
    for order in ("sentences", "words"):
        changed = {scrambled(TEXT + ".", order, random.Random(seed)) for seed in range(20)}
        assert len(changed) > 10
        for ids in encoder.token_ids(sorted(changed)):
            assert sorted(ids) == sorted(before)


def test_no_sentence_runs_into_the_next():
    for seed in range(10):
        found = scrambled("it is red. it is big", "sentences", random.Random(seed))
        assert set(sentences(found)) == {"it is red.", "it is big."}
    assert scrambled("only one, without a stop", "sentences", random.Random(0)) == (
        "only one, without a stop"
    )


def test_marks_at_the_end_of_a_sentence_stay_there():
    found = scrambled('he says "stop it!" it is a star ?', "words", random.Random(3))
    assert found.endswith(" ?")
    assert sentences(found)[0].endswith('!"')


def test_joined_captions_are_sentences():
    text = joined(["a red star", " a blue moon. ", 'it says "stop!"'])
    assert text == 'a red star. a blue moon. it says "stop!"'
    assert len(sentences(text)) == 3
