"""What the loop asks and what comes back: `Call`, `Reply`, and the failures between them."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from paragrain.collection import Record
from paragrain.errors import ParagrainError

Kind = Literal["captions", "negatives", "paragraph", "judge"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""What can be asked about an image; a judge scores a paragraph, the others write texts."""

Ending = Literal["whole", "truncated", "filtered", "broken", "unsaid"]
FailureKind = Literal[
    "request", "unanswered", "empty", "truncated", "unended", "refusal", "unreadable", "too few",
    "repeated",
]  # fmt: skip

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WHOLE = frozenset(
    "stop stopped stop_sequence stop_token stop_str eos eos_token eot eot_id end end_turn "
    "end_of_turn endoftext end_of_text complete completed done finished tool_call tool_calls "
    "tool_use function_call".split()
)
_TRUNCATED = re.compile(r"length|max.*token|token.*(?:max|limit|budget)|truncat|context|incomplete")
_FILTERED = re.compile(
    r"filter|safety|recitation|block|prohibited|spii|guardrail|moderat|toxic|flagged|refus|policy"
    r"|sensitive"
)


def ending(finish: str | None) -> Ending:
    """What a server's finish reason says of the text; only the known whole endings are whole.

    >>> [ending(reason) for reason in ("stop", "EOS_TOKEN", "FINISH_REASON_STOP", "endTurn")]
    ['whole', 'whole', 'whole', 'whole']
    >>> [ending(reason) for reason in ("length", "MAX_TOKENS", "SAFETY", "error", "", None)]
    ['truncated', 'truncated', 'filtered', 'broken', 'unsaid', 'unsaid']
    """
    words = re.sub(r"[\W_]+", "_", _CAMEL.sub("_", finish or "").casefold()).strip("_")
    words = words.removeprefix("finish_reason_").removeprefix("finishreason_")
    if not words:
        return "unsaid"
    if words in _WHOLE:
        return "whole"
    if _FILTERED.search(words):
        return "filtered"
    return "truncated" if _TRUNCATED.search(words) else "broken"


@dataclass(frozen=True)
class Call:
    """One question to a model about one image.

    Attributes:
        kind: what is asked for.
        record: the record that the image belongs to, without its image bytes.
        prompt: the whole text that goes with the image; it asks for a numbered list where
            `count` is above zero.
        json_prompt: the same question, asking for one JSON object of `schema`; None where there
            is no schema.
        schema: JSON schema of the answer, for servers that can hold their output to one.
        count: number of list items asked for; 0 where the answer is no list.
        candidate: of which paragraph of the image this is about, from 1; 1 for lists.
        number: which request of this question it is, from 1.
        paragraph: the paragraph to be scored; None unless `kind` is "judge".
        temperature: 0 for the most likely answer.
        top_p: probability mass of nucleus sampling.
        max_tokens: most tokens of the answer.
        seed: of the sampling, for backends that take one; 31 bits.
    """

    kind: Kind
    record: Record
    prompt: str
    json_prompt: str | None = None
    schema: dict[str, Any] | None = None
    count: int = 0
    candidate: int = 1
    number: int = 1
    paragraph: str | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 200
    seed: int = 0


@dataclass(frozen=True)
class Reply:
    """What a model said, word for word.

    Attributes:
        text: the message's content; None or empty if there was none.
        finish: why it ended, as the server says: "stop", "length", "content_filter", ...; None
            if it does not say.
        refusal: the server's own field of that name, if it sent one.
        prompt_tokens, completion_tokens: tokens read and written, if the server counts them.
    """

    text: str | None
    finish: str | None = "stop"
    refusal: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def ending(self) -> Ending:
        """What `finish` says of the text."""
        return ending(self.finish)


@dataclass(frozen=True)
class Failure:
    """Why a reply is not what was asked for; `kind` is one of a few words that can be counted.

    | kind | what happened |
    |---|---|
    | request | the server refuses this request for good |
    | unanswered | the server could not be reached, or was busy for too long |
    | empty | no content, no choices |
    | truncated | the reply ends in the middle, at the token limit |
    | unended | the server does not say that the reply is whole, but something else |
    | refusal | the model declines |
    | unreadable | no list, score or paragraph can be read from it with certainty |
    | too few | a list of fewer items than asked for |
    | repeated | too few items, since some say the same or equal a correct caption |

    Attributes:
        kind: as in the table.
        detail: what it was in this case.
        thinking: the reply was truncated before its answer began: it needs a higher limit.
        said: how the reply begins, for a message to the user.
    """

    kind: FailureKind
    detail: str = ""
    thinking: bool = field(default=False, compare=False)
    said: str = field(default="", compare=False, repr=False)

    @property
    def transient(self) -> bool:
        """Whether there was no reply at all, so that the next run may well have an answer."""
        return self.kind in ("request", "unanswered")

    @property
    def again(self) -> bool:
        """Whether the next run may ask the same question again: no reply, or none that ended."""
        return self.transient or self.kind in ("truncated", "unended", "refusal", "empty")

    def __str__(self) -> str:
        """`unreadable (no numbered list)`."""
        return f"{self.kind} ({self.detail})" if self.detail else self.kind


class RequestFailed(ParagrainError):
    """A backend gives up on one call, after its own retries; the message is the reason.

    Attributes:
        fatal: every other call will fail for the same reason (a wrong key, an unknown
            model): the run has to stop.
        unanswered: the failure was transient, but lasted longer than is waited for.
        explained: the model or its server said why; else it was busy, or could not be reached.
    """

    def __init__(
        self,
        reason: str,
        *,
        fatal: bool = False,
        unanswered: bool = False,
        explained: bool = True,
    ):
        """Keep the reason."""
        super().__init__(reason)
        self.fatal, self.unanswered, self.explained = fatal, unanswered, explained

    @property
    def failure(self) -> Failure:
        """The same as a `Failure`."""
        return Failure("unanswered" if self.unanswered else "request", str(self))
