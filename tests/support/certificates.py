"""Authorities and certificates, made by openssl where they are needed and gone with the test."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

NEW_KEY = ["-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
NEW_RSA_KEY = ["-nodes", "-newkey", "rsa:2048"]


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Certificate:
    """A certificate and its key, as files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self.key = folder / f"{name}.pem", folder / f"{name}.key"

    def server_words(self) -> list[str]:
        """The arguments of a server that shows it."""
        return ["--tls-cert-file", str(self.file), "--tls-key-file", str(self.key)]


class Authority(Certificate):
    """An authority, and whatever it certifies, in one directory."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        super().__init__(folder, name)
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]  # Python 3.13 checks that it is there
        words = ["-subj", f"/CN={name}", "-keyout", self.key, "-out", self.file]
        openssl("req", "-x509", *NEW_KEY, *usage, *words)

    def certify(self, name: str, new_key: list[str] = NEW_KEY) -> Certificate:
        """A certificate with that common name, good for 127.0.0.1 and localhost."""
        made = Certificate(self.folder, name)
        signed = ["-CA", self.file, "-CAkey", self.key, "-addext", "basicConstraints=CA:FALSE"]
        names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        words = ["-subj", f"/CN={name}", "-keyout", made.key, "-out", made.file]
        openssl("req", "-x509", *signed, *names, *new_key, *words)
        return made

    def trusted(self, shown: Certificate | None = None) -> ssl.SSLContext:
        """What a client begins with that trusts this authority and shows that certificate."""
        context = ssl.create_default_context(cafile=self.file)
        if shown is not None:
            context.load_cert_chain(shown.file, shown.key)
        return context
