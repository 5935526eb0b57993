"""Whether the parts of a checkpoint belong together: model, tokenizer, image processor."""

from PIL import Image

from paragrain.encoders.base import ImageTextEncoder
from paragrain.errors import ParagrainError


def check_vocabulary(encoder: ImageTextEncoder, entries: int) -> None:
    """Refuse a tokenizer that knows more than the `entries` rows of the text model's table.

    Raises:
        ParagrainError: some of its ids would lie outside the table.
    """
    words = len(encoder.tokenizer)
    if words > entries:
        raise ParagrainError(
            f"the tokenizer of {encoder.name} has {words:,} entries but its text model only "
            f"{entries:,}: use the tokenizer that came with the checkpoint"
        )


def check_end_token(encoder: ImageTextEncoder) -> None:
    """Refuse a tokenizer that does not close a text with its end token.

    Raises:
        ParagrainError: even an empty text has another last token.
    """
    end = encoder.tokenizer.eos_token_id
    if encoder.token_ids([""])[0][-1:] != [end]:
        raise ParagrainError(
            f"the tokenizer of {encoder.name} does not close a text with its end token "
            f"{encoder.tokenizer.eos_token}: use the tokenizer that came with the checkpoint"
        )


def check_pixels(encoder: ImageTextEncoder, size: int) -> None:
    """Refuse an image processor that does not make the `size` x `size` images of the model.

    Raises:
        ParagrainError: an image comes out in another size.
    """
    _, height, width = encoder.pixels(Image.new("RGB", (size + 3, size + 2))).shape
    if (height, width) != (size, size):
        raise ParagrainError(
            f"the image processor of {encoder.name} makes {height} x {width} images but its "
            f"vision model reads {size} x {size}: correct the sizes in its preprocessor "
            "configuration"
        )
