"""Getting calls answered by models, a bounded number at once; each reply is kept."""

import asyncio
import re
from collections import Counter, defaultdict
from typing import TypeVar

from paragrain.annotation.backends import Backend, make_backend
from paragrain.annotation.calls import Call, Kind, Reply, RequestFailed
from paragrain.annotation.database import Database, call_key
from paragrain.annotation.loop import Answer, Calls
from paragrain.annotation.pictures import PreparedImage
from paragrain.annotation.replay import model_of
from paragrain.annotation.report import AnnotationReport, read_failed
from paragrain.annotation.settings import AnnotationSettings, BackendSettings

SAME_REFUSALS = 3
"""Images that are refused in the same words, without any answer before, after which a run stops."""

ANY_REFUSALS = 6
"""The same, where the words differ."""

_PARTICULAR = re.compile(r"\S*\d\S*")  # numbers of requests, sizes, names of files

T = TypeVar("T")


class _OpenModel:
    """A backend with its semaphore, and its refusals before it answered a kind of question.

    A model that cannot see, a name that the server does not know, a URL that is another service's:
    servers say so with any status and in any words. What is the same for the first few images is
    no fault of an image, and no waiting mends it.
    """

    def __init__(self, settings: BackendSettings) -> None:
        self.settings = settings
        self.backend: Backend = make_backend(settings)
        self.semaphore = asyncio.Semaphore(self.backend.max_concurrency)
        self.answered: set[Kind] = set()
        self._refused: dict[Kind, dict[str, str]] = defaultdict(dict)

    def refuse(self, kind: Kind, identity: str, failure: RequestFailed) -> dict[str, str]:
        """Take note that the question about an image was refused.

        Returns:
            The images that were refused and what was said of each, if the run has to stop.
        """
        if kind in self.answered or not failure.explained:
            return {}
        refused = self._refused[kind]
        refused[identity] = str(failure)
        alike = Counter(_PARTICULAR.sub("#", words.lower()) for words in refused.values())
        stop = max(alike.values()) >= SAME_REFUSALS or len(refused) >= ANY_REFUSALS
        return refused if stop else {}


class Client:
    """Answers calls; use it as an asynchronous context manager.

    Attributes:
        report: where replies are counted.
    """

    def __init__(
        self, settings: AnnotationSettings, database: Database, report: AnnotationReport
    ) -> None:
        """Prepare; models are opened when the context is entered."""
        self.settings, self.database, self.report = settings, database, report
        self._models: list[_OpenModel] = []
        self._under_way: dict[str, asyncio.Lock] = {}
        self._asked: set[str] = set()
        self._failed_before = read_failed(report.folder / "annotation")

    @property
    def max_concurrency(self) -> int:
        """Calls that all models together work on at once."""
        return sum(model.backend.max_concurrency for model in self._models)

    @property
    def stall_reason(self) -> str:
        """Why calls are waiting just now; empty if none is."""
        return next((m.backend.stall_reason for m in self._models if m.backend.stall_reason), "")

    async def __aenter__(self) -> "Client":
        """Open the models; a judge that is the generator shares its connection and slots."""
        generator, judge = self.settings.generator, self.settings.judge
        self._models.append(_OpenModel(generator))
        if judge is not None and judge != generator and "paragraph" in self.settings.texts:
            self._models.append(_OpenModel(judge))
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the models; what they have to say goes to the report."""
        self.collect_notes()
        for model in self._models:
            await model.backend.close()

    def collect_notes(self) -> None:
        """Put what the models have to say into the report."""
        for model in self._models:
            self.report.notes += [n for n in model.backend.notes if n not in self.report.notes]

    async def drive(
        self, loop: Calls[T], content: str, picture: PreparedImage, *, fresh: bool = False
    ) -> tuple[T, int]:
        """Answer the calls of a generator until it returns; its result, and how many they were.

        With `fresh`, what earlier runs were told and did not end well is asked for again.
        """
        answer: Answer | None = None
        answered = 0
        try:
            while True:
                call = next(loop) if answer is None else loop.send(answer)
                answer = await self._answer(call, content, picture, fresh)
                answered += 1
        except StopIteration as ended:
            return ended.value, answered

    async def _answer(
        self, call: Call, content: str, picture: PreparedImage, fresh: bool
    ) -> Answer:
        """The reply to a call; a new one goes into the database before it counts.

        A second call with the same key, for the same image twice, waits for the first's reply.
        """
        key = call_key(call, content, model_of(call, self.settings), self.settings.image)
        lock = self._under_way.setdefault(key, asyncio.Lock())
        async with lock:
            try:
                reply = self.database.reply(key)
                if reply is None or (fresh and reply.ending != "whole" and key not in self._asked):
                    return await self._request(call, key, picture)
                self.report.reused += 1
                return reply
            finally:  # those who wait have the lock itself
                self._under_way.pop(key, None)

    async def _request(self, call: Call, key: str, picture: PreparedImage) -> Answer:
        model = self._models[-1 if call.kind == "judge" else 0]
        try:
            async with model.semaphore:
                reply: Reply = await model.backend.ask(call, picture)
        except RequestFailed as failure:
            if failure.fatal:
                raise
            self._stop_if_all_are_refused(model, call, failure)
            return failure
        model.answered.add(call.kind)
        name = model_of(call, self.settings)
        self.database.add_reply(key, call, name, self.settings.prompts.version, reply)
        if reply.ending != "whole":
            self._asked.add(key)
        self.report.count_reply(reply)
        return reply

    def _stop_if_all_are_refused(
        self, model: _OpenModel, call: Call, failure: RequestFailed
    ) -> None:
        """End the run if the first few images were all refused.

        Images that failed before may be all that is left, and may all be at fault themselves.
        """
        if call.record.id in self._failed_before and self.report.reused:
            return
        refused = model.refuse(call.kind, call.record.id, failure)
        if not refused:
            return
        listed = {identity for identity, _ in self.report.failed}
        self.report.failed += [
            (identity, f"{call.kind}: {failure.failure.kind} ({words})")
            for identity, words in refused.items()
            if identity not in listed
        ]
        raise RequestFailed(
            f"{model_of(call, self.settings)} has answered nothing, and said of each of the first "
            f"{len(refused)} images: {str(failure)!r}; see to the model, which has to take images, "
            "and to the URL, and run the same command again",
            fatal=True,
        )
