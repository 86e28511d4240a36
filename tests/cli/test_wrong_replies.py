"""A program on the port that is no Redis server gives one line and exit code 1 or 2, in every command."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import headrace
from headrace.cli.main import SUMMARY_BY_COMMAND, main
from headrace.client.reply_shapes import SHAPE_BY_COMMAND, check_reply
from headrace.errors import HeadraceError, UnexpectedReply
from support.wrong_server import CUT, POLITENESS, REPLIES, WrongServer


@pytest.fixture(params=POLITENESS)
def polite(request: pytest.FixtureRequest) -> dict[bytes, bytes]:
    return POLITENESS[request.param]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    return tmp_path


ARGUMENTS = {
    "ack": ["s", "g", "1-0"],
    "add": ["s", "f=v"],
    "archive": ["--stream", "s", "--to", "archive"],
    "groups": ["s"],
    "inspect": ["s"],
    "load": ["rows.csv", "--stream", "s"],
    "ls": [],
    "pending": ["s", "g"],
    "query": ["SELECT * FROM s"],
    "replay": ["--stream", "s", "--into", "t"],
    "rules": ["s"],
    "tail": ["s"],
    "top": ["--once", "--every", "0.1"],
    "trim": ["--stream", "s", "--dry-run"],
}
MORE = {
    "ls archives": ["ls", "--archives"],
    "rules set": ["rules", "s", "--max-len", "5"],
    "tail from": ["tail", "s", "--from", "-"],
    "tail group": ["tail", "s", "--group", "g"],
}
WITHOUT_SERVER = {"check", "demo", "export", "recover", "serve"}
# What these print of a well-formed reply is right, however little sense it makes.
MAY_SUCCEED = {"ls", "ls archives", "top", "query", "trim", "archive"}


def test_every_command_that_talks_to_a_server_is_tried():
    assert set(ARGUMENTS) | WITHOUT_SERVER == set(SUMMARY_BY_COMMAND)


@pytest.mark.parametrize("command", [*ARGUMENTS, *MORE])
def test_a_wrong_reply_gives_one_line(command, polite, directory, capsys):
    for reply in REPLIES:
        if command == "replay" and reply in CUT - {"nothing"}:  # it waits for a server that was lost
            continue
        server = WrongServer(reply, polite)
        try:
            words = MORE.get(command) or [command, *ARGUMENTS[command]]
            code = main([*words, "--url", server.url])
        finally:
            server.close()
        out, err = capsys.readouterr()
        assert code in ((0, 1, 2) if command in MAY_SUCCEED else (1, 2)), (reply, code, out, err)
        assert "\x1b[31m" not in out + err, (reply, err)
        if code:
            assert err.startswith("headrace: ") and err.count("\n") == 1, (reply, err)


class SilentHandler(BaseHTTPRequestHandler):
    """A web server's handler that logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("scheme", ["redis", "cluster"])
def test_a_web_server_on_the_port_is_reported_as_such(
    scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with HTTPServer(("127.0.0.1", 0), SilentHandler) as web_server:
        threading.Thread(target=web_server.serve_forever, daemon=True).start()
        url = f"{scheme}://127.0.0.1:{web_server.server_port}"
        assert main(["ls", "--url", url]) != 0
        [line] = capsys.readouterr().err.splitlines()
        assert "is it a Redis server?" in line and "headrace serve" not in line
        with pytest.raises(HeadraceError, match=r"is it a Redis server\?"):
            headrace.connect(url).stream("s").add({"n": 1})
        web_server.shutdown()


@pytest.mark.parametrize("name", sorted(set(SHAPE_BY_COMMAND) - {"COMMAND INFO"}))
def test_no_shape_accepts_or_breaks_at_what_is_not_a_reply_to_the_command(name):
    for reply in (1.5, {}, set(), True, [[[1]]], [b"a", 1], [b"\xff", [b"1-0", 5]], object()):
        with pytest.raises(UnexpectedReply, match="is not one of Redis"):
            check_reply("redis://localhost", name.split(), reply)
    check_reply("redis://localhost", name.split(), ValueError("an error reply"))
