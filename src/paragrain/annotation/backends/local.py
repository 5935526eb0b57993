"""A vision-language model in this process, through `transformers`, asked in batches."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paragrain.annotation.calls import Call, Reply, RequestFailed
from paragrain.annotation.pictures import PreparedImage
from paragrain.annotation.settings import BackendSettings
from paragrain.errors import ParagrainError, UsageError
from paragrain.images import decode

if TYPE_CHECKING:
    import torch

GATHERING = 0.05
"""Seconds for which a batch that is not full waits for more calls, while nothing is running."""

_FILES = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
_SMALLEST = 1e-30  # a draw of exactly zero has no logarithm


@dataclass(eq=False)
class _Job:
    """A call that somebody waits for."""

    call: Call
    picture: PreparedImage
    answer: "asyncio.Future[Reply]"

    @property
    def sampling(self) -> tuple[int, float, float]:
        """Calls that share this can share a batch."""
        return self.call.max_tokens, self.call.temperature, self.call.top_p


class LocalBackend:
    """Answers with a model of this process: Qwen2-VL, Llama-3.2-Vision, LLaVA and their like.

    Calls of equal token limit, temperature and top-p run together, in one thread; one that
    fails in company is asked again alone. Out of memory, the batches become smaller for good.

    Nothing but the call decides how a reply is drawn: of the checkpoint's generation settings
    (top-k, penalties, beams and so on) only the end tokens count. Each call draws with a seed of
    its own, so that its reply does not depend on its batch, apart from rounding: kernels may sum
    in another order for another batch size, which matters in half precision.

    On the CPU the model computes in float32, since half precision is hundreds of times slower
    there; elsewhere in the type that the checkpoint states.

    Attributes:
        max_concurrency: two batches, one running and one waiting; at most what the settings say.
        notes: says so if the batches became smaller.
    """

    def __init__(self, settings: BackendSettings):
        """Open the model.

        Raises:
            UsageError: there is no such folder or device, or `structured` is "on", which a model
                of this process cannot be held to.
            ParagrainError: it cannot be opened, lacks weights or a chat template with an image.
        """
        if settings.structured == "on":
            raise UsageError(
                "a model in this process cannot be held to a JSON schema: leave out "
                "`structured=on`, or ask a server"
            )
        self._name = settings.name
        self.max_concurrency = min(settings.max_concurrency, 2 * settings.batch_size)
        self.stall_reason = ""
        self.notes: list[str] = []
        self._vlm = _VisionLanguageModel(settings.model, settings.device)
        self._batch_size = settings.batch_size
        self._waiting: list[_Job] = []
        self._running: list[_Job] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vlm")
        self._batcher: asyncio.Task[None] | None = None

    async def ask(self, call: Call, picture: PreparedImage) -> Reply:
        """Answer one call, in the next batch that it fits.

        Raises:
            RequestFailed: the model cannot take this image or prompt, even alone.
        """
        if self._batcher is None or self._batcher.done():
            self._arrived = asyncio.Event()
            self._batcher = asyncio.create_task(self._serve())
        job = _Job(call, picture, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._arrived.set()
        return await job.answer

    async def close(self) -> None:
        """Stop at the next token, drop all calls, and end the thread."""
        if self._batcher is not None and not self._batcher.done():
            self._batcher.cancel()
            await asyncio.wait([self._batcher])
        await asyncio.to_thread(self._thread.shutdown)

    async def _serve(self) -> None:
        """Run batch after batch; at the end, whoever still waits is told that it is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._until(1)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._until(self._batch_size), GATHERING)
                self._running = self._next_batch()
                answers = await loop.run_in_executor(self._thread, self._answers, self._running)
                for job, answer in zip(self._running, answers, strict=True):
                    if job.answer.done():  # cancelled meanwhile
                        continue
                    if isinstance(answer, Reply):
                        job.answer.set_result(answer)
                    else:
                        job.answer.set_exception(answer)
        finally:
            for job in [*self._running, *self._waiting]:
                job.answer.cancel()
            self._waiting = []

    async def _until(self, enough: int) -> None:
        while len(self._waiting) < enough:
            self._arrived.clear()
            await self._arrived.wait()

    def _next_batch(self) -> list[_Job]:
        """Take the largest group that can run together, the oldest first; drop cancelled calls."""
        groups: dict[tuple[int, float, float], list[_Job]] = {}
        for job in self._waiting:
            if not job.answer.done():
                groups.setdefault(job.sampling, []).append(job)
        batch = max(groups.values(), key=len, default=[])[: self._batch_size]
        left = {job for group in groups.values() for job in group} - set(batch)
        self._waiting = [job for job in self._waiting if job in left]
        return batch

    def _answers(self, jobs: Sequence[_Job]) -> list[Reply | RequestFailed]:
        """One reply or failure for each job, in their order; runs in the worker thread."""
        if not jobs:
            return []
        try:
            return list(self._vlm.replies(jobs, lambda: all(job.answer.done() for job in jobs)))
        except Exception as caught:
            error = caught.with_traceback(None)  # its frames hold on to the batch's memory
        size = 1
        if _out_of_memory(error) and len(jobs) > 1:
            size = self._batch_size = len(jobs) // 2
            self.notes.append(f"out of memory at {len(jobs)} images a batch: went on with {size}")
        elif len(jobs) == 1:
            return [self._failure(error)]
        parts = [jobs[start : start + size] for start in range(0, len(jobs), size)]
        return [answer for part in parts for answer in self._answers(part)]

    def _failure(self, error: Exception) -> RequestFailed:
        # After an error of its own, CUDA answers nothing more in this process.
        fatal = str(error).startswith("CUDA error")
        return RequestFailed(f"{self._name} failed: {_gist(error)}", fatal=fatal)


class _VisionLanguageModel:
    """A model with its processor."""

    def __init__(self, name: str, device: str | None):
        from transformers import GenerationConfig

        from paragrain.encoders.loading import choose_device

        self.device = choose_device(device)
        self.processor, self.model = _open(name, self.device)
        self.tokenizer = self.processor.tokenizer
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        self.ends = {*ends, self.tokenizer.eos_token_id} - {None}
        # What `generate` is not told it takes from here, so nothing else may stand here.
        self.model.generation_config = GenerationConfig(
            bos_token_id=self.tokenizer.bos_token_id,
            eos_token_id=sorted(self.ends) or None,
            pad_token_id=self.tokenizer.pad_token_id,
        )

    def replies(self, jobs: Sequence[_Job], stopped: Callable[[], bool]) -> list[Reply]:
        """One reply for each job; they share token limit, temperature and top-p.

        Args:
            jobs: what is asked.
            stopped: asked after each token; from True on, the rest is not written.
        """
        import torch
        from transformers import StoppingCriteriaList

        inputs = self._inputs(jobs)
        with torch.inference_mode():
            rows = self.model.generate(
                **inputs,
                max_new_tokens=jobs[0].call.max_tokens,
                do_sample=False,  # of the logits to which `_draw` added its noise
                logits_processor=self._draw([job.call for job in jobs]),
                stopping_criteria=StoppingCriteriaList([_Stopped(stopped)]),
            )
        written = rows[:, inputs["input_ids"].shape[1] :].tolist()
        read = inputs["attention_mask"].sum(1).tolist()
        return [self._reply(*pair) for pair in zip(written, read, strict=True)]

    def _inputs(self, jobs: Sequence[_Job]) -> Any:
        """Token ids padded on the left, so that every row's answer begins at the same place."""
        conversations = [
            _conversation(self._plain(job.call.prompt), decode(job.picture.data)) for job in jobs
        ]
        inputs = self.processor.apply_chat_template(
            conversations,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "padding_side": "left"},
        )
        return inputs.to(self.device, dtype=self.model.dtype)

    def _plain(self, prompt: str) -> str:
        """Take the power from control tokens in a caption, such as a second `<image>`."""
        tokens = {str(t) for t in self.tokenizer.added_tokens_decoder.values() if t.special}
        tokens.add(getattr(self.processor, "image_token", None) or "")
        for token in tokens:
            if len(token) > 1 and token in prompt:
                prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        return prompt

    def _draw(self, calls: Sequence[Call]) -> Any:
        """The processors of the logits that make greedy search draw at random, where it should."""
        from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

        first = calls[0]
        processors = LogitsProcessorList()
        if first.temperature == 0:
            return processors
        if first.temperature != 1:
            processors.append(TemperatureLogitsWarper(first.temperature))
        if first.top_p < 1:
            processors.append(TopPLogitsWarper(first.top_p))
        processors.append(_Noise([call.seed for call in calls], self.device))
        return processors

    def _reply(self, tokens: list[int], read: int) -> Reply:
        end = next((place for place, token in enumerate(tokens) if token in self.ends), None)
        if end is not None:
            tokens = tokens[: end + 1]  # then come only pads
        return Reply(
            text=self.tokenizer.decode(tokens, skip_special_tokens=True),
            finish="length" if end is None else "stop",
            prompt_tokens=read,
            completion_tokens=len(tokens),
        )


class _Noise:
    """Gumbel noise: the largest of `log p + noise` is a draw from `p`; one seed for each row."""

    def __init__(self, seeds: Sequence[int], device: "torch.device"):
        import torch

        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
        noise = scores.new_empty(scores.shape)
        for row, generator in zip(noise, self._generators, strict=True):
            row.exponential_(generator=generator)
        return scores - noise.clamp_min_(_SMALLEST).log_()


class _Stopped:
    """Ends all rows once `stopped` says so."""

    def __init__(self, stopped: Callable[[], bool]):
        self._stopped = stopped

    def __call__(self, input_ids: "torch.Tensor", scores: object, **_: object) -> "torch.Tensor":
        return input_ids.new_full(input_ids.shape[:1], self._stopped()).bool()


def _conversation(prompt: str, image: Any = None) -> list[dict[str, Any]]:
    """One turn of the user's; without an image, text alone."""
    parts: list[dict[str, Any]] = [{"type": "image", "image": image}] if image else []
    return [{"role": "user", "content": [*parts, {"type": "text", "text": prompt}]}]


def _gist(error: Exception) -> str:
    from paragrain.encoders.checkpoint import first_line

    return first_line(error)


def _open(name: str, device: "torch.device") -> tuple[Any, Any]:
    """The processor and the model, complete and able to be asked about an image."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from paragrain.encoders.checkpoint import quiet_transformers
    from paragrain.encoders.loading import checkpoint_folder, snapshot

    folder = checkpoint_folder(name, lambda hub_name: snapshot(hub_name, _FILES))
    try:
        with quiet_transformers():
            processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)
            _check_template(processor, name)
            model, loading = AutoModelForImageTextToText.from_pretrained(
                folder,
                dtype=torch.float32 if device.type == "cpu" else "auto",
                device_map=device,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except ParagrainError:
        raise
    except Exception as error:  # of a dozen libraries
        raise ParagrainError(_why_not(name, error)) from error
    if missing := sorted(loading["missing_keys"]):
        raise ParagrainError(
            f"{name} lacks {len(missing)} of its weights, {missing[0]} among them: "
            "fetch the checkpoint again"
        )
    return processor, model.eval()


def _check_template(processor: Any, name: str) -> None:
    if not getattr(processor, "chat_template", None):
        raise ParagrainError(
            f"{name} has no chat template, so nothing says how it is to be asked about an image: "
            "use the version of the model that was trained to follow instructions"
        )
    blank = _conversation("x"), _conversation("x", image="here")
    without, with_image = (processor.apply_chat_template(one) for one in blank)
    if with_image == without:
        raise ParagrainError(
            f"the chat template of {name} leaves the image out: fetch a checkpoint whose "
            "template has a place for it"
        )


def _why_not(name: str, error: Exception) -> str:
    if isinstance(error, ImportError) and "torchvision" in str(error).lower():
        return f"the image processor of {name} needs torchvision: `pip install torchvision`"
    return (
        f"{name} cannot be opened as a model of images and text ({_gist(error)}): name a "
        "complete checkpoint of a model that transformers knows, with safetensors weights"
    )


def _out_of_memory(error: Exception) -> bool:
    import torch

    if not isinstance(error, torch.OutOfMemoryError):
        return False
    torch.cuda.empty_cache()  # pieces kept for the large batch are of no use to smaller ones
    return True
