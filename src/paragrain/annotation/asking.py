"""Getting calls answered: from the log, or else from a model, a bounded number at once."""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

from paragrain.annotation.backends import Backend, make_backend
from paragrain.annotation.calls import Call, Picture, RequestFailed
from paragrain.annotation.log import CallLog, call_key
from paragrain.annotation.loop import Answer, Outcome, annotate_image
from paragrain.annotation.report import AnnotationReport
from paragrain.annotation.settings import AnnotationSettings, BackendSettings
from paragrain.collection import Record

T = TypeVar("T")


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
        self._asking: dict[str, asyncio.Lock] = {}

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
        return backend

    async def drive(
        self, loop: Generator[Call, Answer, T], content: str, picture: Picture
    ) -> tuple[T, int]:
        """Answer the calls of a generator until it returns; its result, and how many they were."""
        answer: Answer | None = None
        answered = 0
        try:
            while True:
                call = next(loop) if answer is None else loop.send(answer)
                answer = await self._answer(call, content, picture)
                answered += 1
        except StopIteration as ended:
            return ended.value, answered

    async def _answer(self, call: Call, content: str, picture: Picture) -> Answer:
        """The reply to a call; a new one goes into the log before it counts."""
        backend = self._judge if call.kind == "judge" else self._generator
        assert backend is not None
        model = model_of(call, self.settings)
        key = call_key(call, content, model, self.settings.image)
        async with self._only(key):
            if (reply := self.log.find(key)) is not None:
                self.report.reused += 1
                return reply
            try:
                async with self._slots[id(backend)]:
                    reply = await backend.ask(call, picture)
            except RequestFailed as failure:
                if failure.everywhere:
                    raise
                return failure
            self.log.append(key, call, model, self.settings.prompts.version, reply)
        self.report.count_reply(reply)
        return reply

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


def model_of(call: Call, settings: AnnotationSettings) -> str:
    """The name of the model that a call goes to."""
    if call.kind == "judge":
        assert settings.judge is not None
        return settings.judge.name
    return settings.generator.name


def replay(
    record: Record, content: str, settings: AnnotationSettings, log: CallLog
) -> tuple[Outcome | Call, int]:
    """What the log makes of an image: its outcome or the first call that is missing; replies used.

    Args:
        record: the image's record.
        content: hash of the image's bytes.
        settings: of the run.
        log: where replies may be.
    """
    loop = annotate_image(record, content, settings)
    answer: Answer | None = None
    found = 0
    try:
        while True:
            call = next(loop) if answer is None else loop.send(answer)
            answer = log.find(call_key(call, content, model_of(call, settings), settings.image))
            if answer is None:
                return call, found
            found += 1
    except StopIteration as ended:
        return ended.value, found
