"""The image embeddings of a collection: computed once, kept beside it, brought up to date.

They lie in `<collection>/embeddings/<vision fingerprint>/`:

    pooled.npy      float32 [R, D], a row for each different image
    pooled.txt      a line for each row: the content hash, as in the column `content` of the
                    records, and the digest of the row
    pooled.json     encoder, shape, number of rows, and what the files were when last checked

and, of images that lie as files, `<collection>/embeddings/files.json`: their contents, sizes and
times when they were last read.

Batches are appended, and count once they are whole, so a run may be killed at any moment, or two
may work at once: at worst something is computed twice.
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
from paragrain.embeddings.store import EmbeddingStore

__all__ = [
    "EmbeddingStore",
    "Embeddings",
    "GivenReport",
    "ahead",
    "embed",
    "known_contents",
    "none_embedded",
    "records_with_images",
    "store_vectors",
]
