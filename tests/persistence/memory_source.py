"""A Source of bytes in memory."""


class MemorySource:
    """Bytes that are read in pieces no longer than `most`."""

    def __init__(self, data: bytes, most: int = 1 << 30) -> None:
        self.data, self.at, self.size, self.most = data, 0, len(data), most

    def read(self, n: int) -> bytes:
        piece = self.data[self.at : self.at + min(n, self.most)]
        self.at += len(piece)
        return piece

    def close(self) -> None:
        self.at = self.size
