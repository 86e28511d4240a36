"""An entry of a stream: its ID, its fields, and the value that the stream's codec decodes from them."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView
from typing import Any, Generic, TypeVar

from headrace.api.codecs.codec import PLAIN_CODEC, Codec
from headrace.api.stream_id import StreamID, id_from_reply
from headrace.errors import CodecError

T = TypeVar("T")


class Entry(Generic[T]):
    """An entry: its ID and its fields.

    >>> entry = Entry(StreamID(5, 0), {b"customer": b"ada", b"cents": b"999"})
    >>> entry["customer"], entry.text
    (b'ada', {'customer': 'ada', 'cents': '999'})
    >>> dict(entry)
    {b'customer': b'ada', b'cents': b'999'}

    Another client may write several fields of one name into an entry. `fields` and dict(entry) have the last
    one.

    Attributes:
        id: the entry's ID, a StreamID.
        fields: the values of the fields by name, as bytes.
    """

    __slots__ = ("_codec", "_value", "fields", "id")

    def __init__(self, id: StreamID, fields: dict[bytes, bytes], codec: Codec[T] | None = None) -> None:
        self.id = id
        self.fields = fields
        self._codec: Codec[Any] = PLAIN_CODEC if codec is None else codec

    @property
    def value(self) -> T:
        """The value, decoded by the codec on first use. Raises CodecError if that is impossible."""
        try:
            return self._value
        except AttributeError:
            pass
        try:
            self._value: T = self._codec.decode(self.fields)
        except CodecError as wrong:
            raise CodecError(f"entry {self.id}: {wrong}", entry=self) from wrong
        except KeyError as missing:
            reason = f"has no field {missing}, which its codec needs"
            raise CodecError(f"entry {self.id} {reason}", entry=self) from missing
        except (ValueError, TypeError) as wrong:
            reason = f"cannot be decoded as {self._codec!r}: {wrong}"
            raise CodecError(f"entry {self.id} {reason}", entry=self) from wrong
        return self._value

    @property
    def text(self) -> dict[str, str]:
        """The fields as text; bytes that are not UTF-8 appear as `\\xff`."""
        return {_text(name): _text(value) for name, value in self.fields.items()}

    def __getitem__(self, name: str | bytes) -> bytes:
        """Return the value of a field.

        Raises:
            KeyError: if the entry has no field of that name.
        """
        try:
            return self.fields[name.encode() if isinstance(name, str) else name]
        except KeyError:
            raise KeyError(f"entry {self.id} has no field {name!r}, but {', '.join(self.text)}") from None

    def get(self, name: str | bytes, default: bytes | None = None) -> bytes | None:
        """Return the value of a field, or `default` if the entry has none of that name."""
        return self.fields.get(name.encode() if isinstance(name, str) else name, default)

    def keys(self) -> KeysView[bytes]:
        """Return the names of the fields, as bytes; `dict(entry)` uses this."""
        return self.fields.keys()

    def items(self) -> ItemsView[bytes, bytes]:
        """Return names and values of the fields, as bytes."""
        return self.fields.items()

    def __contains__(self, name: str | bytes) -> bool:
        return (name.encode() if isinstance(name, str) else name) in self.fields

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the names of the fields."""
        return iter(self.fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.id}', {self.text})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entry):
            return NotImplemented
        return self.id == other.id and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.id)


def fields_from_reply(words: list[bytes]) -> dict[bytes, bytes]:
    """Return an entry's fields from a reply, where names and values alternate."""
    return dict(zip(words[::2], words[1::2], strict=True))


def entries_from_reply(reply: list[Any] | None, codec: Codec[T]) -> list[Entry[T]]:
    """Return the entries of a range or read reply, without deleted ones, whose fields are nil."""
    if not reply:
        return []
    return [
        Entry(id_from_reply(id), fields_from_reply(words), codec) for id, words in reply if words is not None
    ]


def _text(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")
