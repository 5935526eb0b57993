"""Which picture a record shows: the content hash that keys its replies, never an outdated one."""

from hashlib import blake2b

from paragrain.collection import Collection, Record
from paragrain.embeddings.linked import is_content_hash, linked_contents, linked_paths
from paragrain.images import BadImage, content_hash

_EDITED = "its file was edited after the import: run `paragrain update` on the collection first"


class Contents:
    """The content hashes of a collection's records, checked against files beside it.

    What a record says of itself counts if it is a hash (another tool's column of that name may
    hold anything), and if the file that it links to (`--store paths`) is as it was then: texts for
    an edited picture would be stored with what the old one was.

    Attributes:
        linked: changes whenever a linked file does; empty if there is none.
    """

    def __init__(self, collection: Collection) -> None:
        """Look at all linked files; those that were never seen, or have changed, are hashed."""
        self._collection = collection
        self._now = linked_contents(collection, linked_paths(collection))
        both = "\n".join(f"{path}\n{content}" for path, content in sorted(self._now.items()))
        self.linked = blake2b(both.encode(), digest_size=16).hexdigest() if self._now else ""

    def of(self, record: Record) -> str | None:
        """The hash that a record tells, its image unread; None if it tells none.

        Raises:
            BadImage: the file that it links to was edited since.
        """
        content = record.content if is_content_hash(record.content) else None
        path = record.image.path
        if content is not None and path and self._now.get(path, content) != content:
            raise BadImage(_EDITED)
        return content

    def read(self, record: Record) -> tuple[bytes, str]:
        """The image of a record that was read with it, and its hash.

        Raises:
            BadImage: it cannot be read, or is not the one that was imported.
        """
        data = self._collection.image_bytes(record)
        content = self.of(record)
        if content is None or record.image.path in self._now:
            found = content_hash(data)
            if content is not None and found != content:
                raise BadImage(_EDITED)
            content = found
        return data, content
