"""The image embeddings of a collection: computed once, kept beside it, brought up to date.

They lie in `<collection>/embeddings/<vision fingerprint>/`:

    vectors.npy     float32 [R, D], one row for each different image
    ids.json        the content hash of each row, as in the column `content` of the records
    manifest.json   encoder, counts, and a checksum of the two
    parts/*.npz     what a run has finished and not yet put into the three above

and, of images that lie as files, `<collection>/embeddings/files.json`: their contents, sizes and
times when they were last read.

Everything appears whole or not at all, so a run may be killed at any moment, or two may work at
once: at worst something is computed twice.
"""

from paragrain.embeddings.embedding import (
    Embeddings,
    ahead,
    embed,
    known_contents,
    none_embedded,
    records_with_images,
)
from paragrain.embeddings.given import GivenReport, store_vectors

__all__ = [
    "Embeddings",
    "GivenReport",
    "ahead",
    "embed",
    "known_contents",
    "none_embedded",
    "records_with_images",
    "store_vectors",
]
