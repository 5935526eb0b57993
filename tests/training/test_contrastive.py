import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from paragrain.training.objectives.contrastive import contrastive_loss


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_one_text_for_each_image_is_infonce():
    images, texts = unit(6, 8), unit(6, 8, seed=1)
    logits = images @ texts.T / 0.07
    target = torch.arange(6)
    loss = contrastive_loss(images, texts, target)
    torch.testing.assert_close(loss.image_to_text, cross_entropy(logits, target))
    torch.testing.assert_close(loss.text_to_image, cross_entropy(logits.T, target))
    torch.testing.assert_close(loss.total, (loss.image_to_text + loss.text_to_image) / 2)


def by_hand(images, texts, text_image, negatives, negative_image, groups, temperature):
    """The formula as it is written, in loops and double precision."""
    score = lambda v, t: math.exp(float(v.double() @ t.double()) / temperature)  # noqa: E731
    forth = back = 0.0
    for i, image in enumerate(images):
        own = [t for t, owner in enumerate(text_image) if owner == i]
        kin = [j for j in range(len(images)) if j != i and groups[j] == groups[i]]
        below = sum(score(image, t) for t, o in zip(texts, text_image, strict=True) if o not in kin)
        below += sum(
            score(image, n) for n, o in zip(negatives, negative_image, strict=True) if o == i
        )
        forth += sum(-math.log(score(image, texts[t]) / below) for t in own) / len(own)
        for t in own:
            over = sum(score(other, texts[t]) for j, other in enumerate(images) if j not in kin)
            back += -math.log(score(image, texts[t]) / over) / len(own)
    return forth / len(images), back / len(images)


def test_uneven_numbers_of_texts_negatives_and_groups_follow_the_formula():
    images, texts, negatives = unit(4, 8), unit(8, 8, seed=1), unit(5, 8, seed=2)
    text_image = torch.tensor([2, 0, 0, 1, 3, 0, 3, 1])
    negative_image = torch.tensor([3, 0, 3, 0, 0])
    groups = torch.tensor([7, 5, 7, 9])
    loss = contrastive_loss(
        images,
        texts,
        text_image,
        negatives=negatives,
        negative_image=negative_image,
        groups=groups,
        temperature=0.2,
    )
    expected = by_hand(
        images, texts, text_image, negatives, negative_image, groups.tolist(), temperature=0.2
    )
    assert float(loss.image_to_text) == pytest.approx(expected[0], rel=1e-5)
    assert float(loss.text_to_image) == pytest.approx(expected[1], rel=1e-5)


def test_equal_numbers_of_texts_give_the_plain_mean():
    images, texts = unit(3, 8), unit(12, 8, seed=1)
    text_image = torch.arange(12) // 4
    loss = contrastive_loss(images, texts, text_image)
    logits = images @ texts.T / 0.07
    plain = -logits.log_softmax(dim=1)[text_image, torch.arange(12)].mean()
    torch.testing.assert_close(loss.image_to_text, plain)
    torch.testing.assert_close(loss.text_to_image, cross_entropy(logits.T, text_image))


def test_ideal_vectors_of_two_images_with_eight_captions_reach_the_minimum():
    images = torch.eye(2, 4)
    text_image = torch.arange(16) // 8
    texts = images[text_image].clone().requires_grad_()
    loss = contrastive_loss(images, texts, text_image)
    assert loss.image_to_text.item() == pytest.approx(math.log(8), abs=1e-4)
    assert loss.text_to_image.item() == pytest.approx(0, abs=1e-4)
    (gradient,) = torch.autograd.grad(loss.total, texts)
    assert gradient.abs().max() < 1e-5  # nothing pushes any text anywhere


def test_own_texts_do_not_move_apart_in_training():
    images = torch.eye(2, 8)
    text_image = torch.arange(16) // 8
    noise = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    raw = (images[text_image] + 0.5 * noise).requires_grad_()
    optimizer = torch.optim.Adam([raw], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        contrastive_loss(images, normalize(raw, dim=1), text_image).total.backward()
        optimizer.step()
    texts = normalize(raw.detach(), dim=1)
    loss = contrastive_loss(images, texts, text_image)
    assert float(loss.image_to_text) == pytest.approx(math.log(8), abs=1e-2)
    own = (images @ texts.T)[text_image, torch.arange(16)]
    assert own.std() < 0.05  # all are equally near


def test_records_of_one_group_do_not_push_each_other():
    """Image 0 and the texts of image 1 show the same thing: neither feels the other."""
    images = unit(3, 8).requires_grad_()
    texts = unit(6, 8, seed=1).requires_grad_()
    text_image = torch.tensor([0, 0, 1, 1, 2, 2])

    def gradient_of_texts(groups: list[int], other: torch.Tensor) -> torch.Tensor:
        moved = torch.stack([images[0], other, images[2]])
        loss = contrastive_loss(moved, texts, text_image, groups=torch.tensor(groups))
        return torch.autograd.grad(loss.total, texts)[0]

    here, there = unit(8, seed=5), unit(8, seed=6)
    # Where image 1 lies changes nothing for the texts of image 0 ...
    same = [gradient_of_texts([4, 4, 6], place)[:2] for place in (here, there)]
    torch.testing.assert_close(same[0], same[1], rtol=0, atol=0)
    # ... which is the group's doing.
    apart = [gradient_of_texts([4, 5, 6], place)[:2] for place in (here, there)]
    assert (apart[0] - apart[1]).abs().max() > 1e-4


def test_negatives_count_in_the_denominator_of_their_own_image_only():
    images, texts, negatives = unit(3, 8), unit(3, 8, seed=1), unit(2, 8, seed=2)
    target = torch.arange(3)
    owner = torch.tensor([1, 1])
    plain = contrastive_loss(images, texts, target)
    hard = contrastive_loss(images, texts, target, negatives=negatives, negative_image=owner)
    torch.testing.assert_close(hard.text_to_image, plain.text_to_image, rtol=0, atol=0)
    logits = images @ texts.T / 0.07
    row = torch.cat([logits[1], negatives @ images[1] / 0.07])
    rows = [cross_entropy(r, torch.tensor(i)) for i, r in enumerate((logits[0], row, logits[2]))]
    torch.testing.assert_close(hard.image_to_text, torch.stack(rows).mean())


def test_no_negatives_is_the_plain_loss():
    images, texts, target = unit(3, 8), unit(3, 8, seed=1), torch.arange(3)
    none = contrastive_loss(
        images,
        texts,
        target,
        negatives=texts[:0],
        negative_image=target[:0],
    )
    assert none == contrastive_loss(images, texts, target)


def test_the_scale_is_at_most_100_and_the_loss_is_float32_under_autocast():
    images, texts, target = unit(4, 8), unit(4, 8, seed=1), torch.arange(4)
    sharp = contrastive_loss(images, texts, target, temperature=math.exp(-12))
    assert sharp == contrastive_loss(images, texts, target, temperature=0.01)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = contrastive_loss(images, texts, target, temperature=math.exp(-12))
    assert mixed.total.dtype == torch.float32
    assert mixed == sharp
    half = contrastive_loss(images.half(), texts.half(), target, temperature=math.exp(-12))
    assert torch.isfinite(half.total)
