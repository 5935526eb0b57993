"""A refusal that all images get, and that no waiting mends.

A model that cannot see, a name that the server does not know, an address that is another service's:
servers say so with any status and in any words. What is the same for the first few images is no
fault of an image.
"""

import re
from collections import Counter

from paragrain.annotation.calls import Kind, RequestFailed

SAME_REFUSALS = 3
"""Images that are refused in the same words, without any answer before, after which a run stops."""

ANY_REFUSALS = 6
"""The same, where the words differ."""

_PARTICULAR = re.compile(r"\S*\d\S*")  # numbers of requests, sizes, names of files


class Refusals:
    """The refusals of a model that has not yet answered a kind of question in this run."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._answered: set[Kind] = set()
        self._refused: dict[Kind, dict[str, str]] = {}

    def answer(self, kind: Kind) -> None:
        """Take note of an answer to a question of this kind."""
        self._answered.add(kind)
        self._refused.pop(kind, None)

    def add(self, kind: Kind, identity: str, failure: RequestFailed) -> dict[str, str]:
        """Take note that the question about an image was refused.

        Returns:
            The images that were refused and what was said of each, if the run has to stop.
        """
        if kind in self._answered or not failure.spoken:
            return {}
        refused = self._refused.setdefault(kind, {})
        refused[identity] = str(failure)
        alike = Counter(_PARTICULAR.sub("#", words.lower()) for words in refused.values())
        return (
            refused if max(alike.values()) >= SAME_REFUSALS or len(refused) >= ANY_REFUSALS else {}
        )
