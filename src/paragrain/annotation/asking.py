"""Getting calls answered by models, a bounded number at once; each reply goes into the log."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

from paragrain.annotation.backends import Backend, make_backend
from paragrain.annotation.calls import Call, Kind, Picture, RequestFailed
from paragrain.annotation.log import CallLog, call_key
from paragrain.annotation.loop import Answer
from paragrain.annotation.remembering import model_of
from paragrain.annotation.report import AnnotationReport, read_failed
from paragrain.annotation.settings import AnnotationSettings, BackendSettings

SAME_REFUSALS = 3
"""Images that are refused in the same words, without any answer before, after which a run stops."""

ANY_REFUSALS = 6
"""The same, where the words differ."""

_PARTICULAR = re.compile(r"\S*\d\S*")  # numbers of requests, sizes, names of files

T = TypeVar("T")


class Refusals:
    """The refusals of a model that has not yet answered a kind of question in this run.

    A model that cannot see, a name that the server does not know, an address that is another
    service's: servers say so with any status and in any words. What is the same for the first few
    images is no fault of an image, and no waiting mends it.
    """

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


class Asker:
    """Answers calls; use it as an asynchronous context manager.

    Attributes:
        report: where replies are counted.
    """

    def __init__(
        self, settings: AnnotationSettings, log: CallLog, report: AnnotationReport
    ) -> None:
        """Prepare; models are opened when the context is entered."""
        self.settings, self.log, self.report = settings, log, report
        self._generator: Backend | None = None
        self._judge: Backend | None = None
        self._slots: dict[int, asyncio.Semaphore] = {}
        self._refusals: dict[int, Refusals] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self._asked: set[str] = set()
        self._failed_before = read_failed(log.folder.parent)

    @property
    def in_flight(self) -> int:
        """Calls that all models together work on at once."""
        return sum(backend.in_flight for backend in self._backends)

    @property
    def trouble(self) -> str:
        """Why calls are waiting just now; empty if none is."""
        return next((backend.trouble for backend in self._backends if backend.trouble), "")

    @property
    def _backends(self) -> list[Backend]:
        return list({id(b): b for b in (self._generator, self._judge) if b is not None}.values())

    async def __aenter__(self) -> "Asker":
        """Open the models; a judge that is the generator shares its connection and its places."""
        generator, judge = self.settings.generator, self.settings.judge
        self._generator = self._open(generator)
        if judge is not None and "paragraph" in self.settings.texts:
            self._judge = self._generator if judge == generator else self._open(judge)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the models; what they have to say goes to the report."""
        self.collect_notes()
        for backend in self._backends:
            await backend.close()

    def collect_notes(self) -> None:
        """Put what the models have to say into the report."""
        for backend in self._backends:
            self.report.notes += [n for n in backend.notes if n not in self.report.notes]

    def _open(self, settings: BackendSettings) -> Backend:
        backend = make_backend(settings)
        self._slots[id(backend)] = asyncio.Semaphore(backend.in_flight)
        self._refusals[id(backend)] = Refusals()
        return backend

    async def drive(
        self,
        loop: Generator[Call, Answer, T],
        content: str,
        picture: Picture,
        *,
        fresh: bool = False,
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

    async def _answer(self, call: Call, content: str, picture: Picture, fresh: bool) -> Answer:
        """The reply to a call; a new one goes into the log before it counts."""
        backend = self._judge if call.kind == "judge" else self._generator
        assert backend is not None
        model = model_of(call, self.settings)
        key = call_key(call, content, model, self.settings.image)
        refusals = self._refusals[id(backend)]
        async with self._only(key):
            reply = self.log.find(key)
            if reply is not None and (not fresh or reply.ending == "whole" or key in self._asked):
                self.report.reused += 1
                return reply
            try:
                async with self._slots[id(backend)]:
                    reply = await backend.ask(call, picture)
                refusals.answer(call.kind)
            except RequestFailed as failure:
                if failure.everywhere:
                    raise
                self._stop_if_all_are_refused(refusals, call, model, failure)
                return failure
            self.log.append(key, call, model, self.settings.prompts.version, reply)
            if reply.ending != "whole":
                self._asked.add(key)
        self.report.count_reply(reply)
        return reply

    def _stop_if_all_are_refused(
        self, refusals: Refusals, call: Call, model: str, failure: RequestFailed
    ) -> None:
        """End the run if the first few images were all refused.

        Images that failed before may be all that is left, and may all be at fault themselves.
        """
        if call.record.id in self._failed_before and self.report.reused:
            return
        refused = refusals.add(call.kind, call.record.id, failure)
        if not refused:
            return
        told = {identity for identity, _ in self.report.failed}
        self.report.failed += [
            (identity, f"{call.kind}: {failure.failure.kind} ({words})")
            for identity, words in refused.items()
            if identity not in told
        ]
        raise RequestFailed(
            f"{model} has answered nothing, and said of each of the first {len(refused)} images: "
            f"{str(failure)!r}; see to the model, which has to take images, and to the address, "
            "and run the same command again",
            everywhere=True,
        )

    @asynccontextmanager
    async def _only(self, key: str) -> AsyncIterator[None]:
        """Hold back a second call with the same key, for the same image twice, until the first's
        reply is in the log.
        """
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:
            try:
                yield
            finally:  # those who wait have the lock itself
                self._asking.pop(key, None)
