from functools import partial

import numpy as np
import pytest
import torch

from paragrain.training.batches import Batch
from paragrain.training.config import TrainConfig
from paragrain.training.gradients import accumulate_gradients, mixed, tokenize
from paragrain.training.objectives.contrastive import contrastive_loss
from paragrain.training.recipes import load_recipe
from paragrain.training.sampling import Text, draw


@pytest.fixture(scope="module")
def batch(record) -> Batch:
    """Six images of the recipe c9 with hard negatives added, two of them in one group."""
    texts, owner, negative = [], [], []
    for number in range(6):
        positives = draw(record(number), load_recipe("c9"), seed=0, epoch=0).positives
        negatives = draw(record(number), load_recipe("c7"), seed=0, epoch=0).negatives
        own = positives[: 7 - number] + negatives
        texts += own
        owner += [number] * len(own)
        negative += [False] * len(positives[: 7 - number]) + [True] * len(negatives)
    images = np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    groups = np.array([0, 1, 2, 1, 4, 5])
    records = [record(number) for number in range(6)]
    return Batch(records, groups, texts, np.array(owner), np.array(negative), images)


@pytest.fixture
def gradients(contrast):
    """Gradients and loss of a batch: `gradients(model, batch, **settings)`."""
    return partial(gradients_of, contrast)


def gradients_of(
    contrast, model, batch: Batch, **settings
) -> tuple[dict[str, torch.Tensor], float]:
    parameters = model.text_tensors()
    for parameter in parameters.values():
        parameter.grad = None
    config = TrainConfig(**settings)
    report = accumulate_gradients(model, contrast(model, **settings), batch, config, step=3)
    return {name: p.grad.clone() for name, p in parameters.items()}, report.loss


def assert_same(first, second, tolerance: float = 1e-6) -> None:
    assert first[1] == pytest.approx(second[1], abs=tolerance)
    for name, gradient in first[0].items():
        torch.testing.assert_close(gradient, second[0][name], rtol=1e-5, atol=tolerance)


def test_chunks_give_the_gradients_of_the_whole_with_dropout_on(
    gradients, contrast, dropout_model, batch
):
    whole = gradients(dropout_model, batch, micro_batch_tokens=64, grad_cache_threshold=10**6)
    chunked = gradients(dropout_model, batch, micro_batch_tokens=64, grad_cache_threshold=1)
    assert_same(whole, chunked)
    # Dropout was really on: other random numbers give another loss.
    parameters = dropout_model.text_tensors().values()
    for parameter in parameters:
        parameter.grad = None
    config = TrainConfig(micro_batch_tokens=64)
    loss = contrast(dropout_model, micro_batch_tokens=64)
    other = accumulate_gradients(dropout_model, loss, batch, config, step=4)
    assert abs(other.loss - whole[1]) > 1e-3


def test_chunks_of_any_size_give_the_gradients_of_plain_autograd(gradients, encoder, batch):
    model = encoder.trainable_copy().train()
    cut = tokenize(model, batch.texts, TrainConfig())
    vectors = torch.cat(
        [
            model.text_features(torch.tensor([row.tolist()]), torch.ones(1, len(row)).long())
            for row in cut.ids
        ]
    )
    negative, owner = torch.tensor(batch.negative), torch.tensor(batch.text_image)
    loss = contrastive_loss(
        torch.tensor(batch.image_embeddings),
        vectors[~negative],
        owner[~negative],
        negatives=vectors[negative],
        negative_image=owner[negative],
        groups=torch.tensor(batch.groups),
    )
    named = model.text_tensors()
    plain = torch.autograd.grad(loss.total, list(named.values()))
    expected = dict(zip(named, plain, strict=True)), loss.total.item()
    for settings in (
        {},
        {"micro_batch_tokens": 1, "grad_cache_threshold": 1},
        {"micro_batch_tokens": 200},
    ):
        assert_same(gradients(model, batch, **settings), expected, tolerance=2e-6)


def test_memory_is_bounded_by_the_pass(gradients, encoder, batch, monkeypatch):
    """With a small length no forward pass that keeps activations sees more than one chunk."""
    model = encoder.trainable_copy().train()
    held = []
    original = type(model).text_features

    def watched(self, input_ids, attention_mask):
        if torch.is_grad_enabled():
            held.append(input_ids.numel())
        return original(self, input_ids, attention_mask)

    monkeypatch.setattr(type(model), "text_features", watched)
    gradients(model, batch, micro_batch_tokens=128, grad_cache_threshold=128)
    assert len(held) > 3
    assert max(held) <= 128
    held.clear()
    gradients(model, batch, micro_batch_tokens=4096)
    assert len(held) == 1


def test_a_step_leaves_the_random_state_alone(gradients, dropout_model, batch):
    before = torch.get_rng_state()
    gradients(dropout_model, batch, grad_cache_threshold=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_texts_are_cut_by_the_budget_of_their_field_and_counted(encoder):
    long = " ".join(["red"] * 200)
    texts = [Text("captions", long), Text("paragraph", long), Text("captions", "a star")]
    cut = tokenize(encoder, texts, TrainConfig())
    assert [len(ids) for ids in cut.ids] == [77, 128, 4]
    assert cut.texts_truncated == 2
    assert cut.tokens_lost == 202 - 77 + 202 - 128
    assert all(ids[-1] == encoder.tokenizer.sep_token_id for ids in cut.ids)


def test_a_budget_past_the_encoder_is_its_limit(encoder):
    config = TrainConfig(max_length={"paragraph": 2000})
    cut = tokenize(encoder, [Text("paragraph", "red " * 900)], config)
    assert len(cut.ids[0]) == encoder.max_tokens


def test_bf16_is_for_cuda_only_unless_asked_for():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert [mixed(TrainConfig(), d) for d in (cpu, cuda)] == [False, True]
    assert not mixed(TrainConfig(precision="fp32"), cuda)
