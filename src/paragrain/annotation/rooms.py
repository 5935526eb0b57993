"""How much room a reply is given, in tokens: more where it was cut."""

from paragrain.annotation.calls import Failure

_NO_USE = 1_000_000  # tries


class Rooms:
    """How many tokens a reply may take: more after each that was cut, up to a limit.

    A model that thinks first may spend all of its room before the answer begins. That is no try:
    it gets four times the room, at once for all further questions about the image. Where even the
    limit was not enough, asking again is of no use.
    """

    def __init__(self, most: int) -> None:
        """Nothing is known yet; `most` tokens are the limit."""
        self._most = most
        self._least: dict[str, int] = {}

    def first(self, model: str, tokens: int) -> int:
        """The room of a new question to a model, of which its answer takes `tokens`."""
        return max(tokens, self._least.get(model, 0))

    def next(
        self, model: str, room: int, failure: Failure | None, factor: int = 2
    ) -> tuple[int, int]:
        """The room of the next try, and for how many tries the last one counts.

        Args:
            model: who was asked.
            room: of the last try.
            failure: what was wrong with the reply.
            factor: by which the room grows, if the answer had begun and was cut.

        >>> rooms = Rooms(8192)
        >>> rooms.next("m", 160, Failure("cut")), rooms.next("m", 160, Failure("unreadable"))
        ((320, 1), (160, 1))
        >>> rooms.next("m", 16, Failure("cut", thinking=True)), rooms.first("m", 16)
        ((64, 0), 64)
        """
        if failure is None or failure.kind != "cut":
            return room, 1
        if not failure.thinking:
            return max(room, min(factor * room, self._most)), 1
        more = max(room, min(4 * room, self._most))
        self._least[model] = max(more, self._least.get(model, 0))
        return more, _NO_USE if more == room else 0
