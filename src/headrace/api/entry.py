"""An entry of a stream: its ID, its fields, and the value that the stream's codec makes of them."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView
from typing import Any, Generic, TypeVar

from headrace.api.codecs.codec import PLAIN, Codec
from headrace.api.stream_id import StreamID, from_reply
from headrace.errors import CodecError

T = TypeVar("T")


class Entry(Generic[T]):
    """What was added to a stream, with the ID that it got.

    >>> entry = Entry(StreamID(5, 0), {b"customer": b"ada", b"cents": b"999"})
    >>> entry["customer"], entry.text
    (b'ada', {'customer': 'ada', 'cents': '999'})
    >>> dict(entry)
    {b'customer': b'ada', b'cents': b'999'}

    Another client may write several fields of one name in an entry; `fields`, and so dict(entry), has the
    last one.
    """

    __slots__ = ("_codec", "_value", "fields", "id")

    def __init__(self, id: StreamID, fields: dict[bytes, bytes], codec: Codec[T] | None = None) -> None:
        self.id = id
        self.fields = fields
        self._codec: Codec[Any] = PLAIN if codec is None else codec

    @property
    def value(self) -> T:
        """What the stream's codec makes of the fields, when first asked for. CodecError if it cannot."""
        try:
            return self._value
        except AttributeError:
            pass
        try:
            self._value: T = self._codec.decode(self.fields)
        except CodecError as wrong:
            raise CodecError(f"entry {self.id}: {wrong}") from wrong
        except KeyError as missing:
            raise CodecError(f"entry {self.id} has no field {missing}, which its codec needs") from missing
        except (ValueError, TypeError) as wrong:
            raise CodecError(f"entry {self.id} cannot be decoded as {self._codec!r}: {wrong}") from wrong
        return self._value

    @property
    def text(self) -> dict[str, str]:
        """The fields as text; bytes that are not UTF-8 are shown as `\\xff`."""
        return {_text(name): _text(value) for name, value in self.fields.items()}

    def __getitem__(self, name: str | bytes) -> bytes:
        """The value of a field; KeyError if the entry has none of that name."""
        try:
            return self.fields[name.encode() if isinstance(name, str) else name]
        except KeyError:
            raise KeyError(f"entry {self.id} has no field {name!r}, but {', '.join(self.text)}") from None

    def get(self, name: str | bytes, default: bytes | None = None) -> bytes | None:
        """The value of a field, or default if the entry has none of that name."""
        return self.fields.get(name.encode() if isinstance(name, str) else name, default)

    def keys(self) -> KeysView[bytes]:
        """Return the names of the fields, as bytes; with them `dict(entry)` works."""
        return self.fields.keys()

    def items(self) -> ItemsView[bytes, bytes]:
        """Return names and values of the fields, as bytes."""
        return self.fields.items()

    def __contains__(self, name: str | bytes) -> bool:
        return (name.encode() if isinstance(name, str) else name) in self.fields

    def __iter__(self) -> Iterator[bytes]:
        """The names of the fields."""
        return iter(self.fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.id}', {self.text})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entry):
            return NotImplemented
        return self.id == other.id and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.id)


def fields_from(words: list[bytes]) -> dict[bytes, bytes]:
    """The fields of an entry, whose names and values stand in turns in a reply."""
    return dict(zip(words[::2], words[1::2], strict=True))


def entries_from(reply: list[Any] | None, codec: Codec[T]) -> list[Entry[T]]:
    """The entries in the answer to a range or a read; those that are gone, whose fields are nil, left out."""
    if not reply:
        return []
    return [Entry(from_reply(id), fields_from(words), codec) for id, words in reply if words is not None]


def _text(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")
