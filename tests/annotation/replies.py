"""What the tests of parsing share."""

from hypothesis import HealthCheck, settings

from paragrain.annotation.calls import Failure, Reply
from paragrain.annotation.parsing import Items, parse_items

FIVE = [
    "A dog runs across the lawn.",
    "2. FC Köln players celebrate a goal",
    'A sign that reads "STOP" beside the "GO" lane.',
    "3 children (all in red) don't look at the dogs' bowl!",
    "一只狗在草地上跑。",
]
LIST = "\n".join(f"{n}. {text}" for n, text in enumerate(FIVE, 1))
TALE = "A dog runs across the lawn. It is brown, and it carries a red ball."


def examples(number: int) -> settings:
    """So many examples, however slow the machine is at drawing them."""
    return settings(
        max_examples=number, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def items_of(text: str | None, finish: str = "stop", count: int = 5) -> Items:
    return parse_items(Reply(text, finish), count)


def kind(result: object) -> object:
    """The kind of a failure; anything else as it is."""
    return result.kind if isinstance(result, Failure) else result
