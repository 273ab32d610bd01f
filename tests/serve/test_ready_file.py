"""`serve --ready-file`: there when the server is, whole, for its owner only, and gone when it has stopped."""

import json
import os
import signal
import stat
import time
from pathlib import Path

import httpx
import pytest

from tests.serve.driver import STOP_S, Running
from tests.serve.hosted import gives_up
from x402sim.commands.common import Misuse
from x402sim.commands.serve import ready_file

READY = '{"event": "ready"}\n'


def test_a_server_writes_it_when_it_answers_and_removes_it_when_it_stops(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text(READY)  # of a server that was killed
    with Running("serve", "--port", "0", "--json", "--ready-file", str(file)) as running:
        line = running.first_line()
        ends = time.monotonic() + STOP_S
        while not (ready := file.read_text() if file.exists() else ""):
            assert time.monotonic() < ends
            time.sleep(0.01)
        assert ready == line, "whole at once"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it has keys"
        assert os.listdir(tmp_path) == ["ready.json"]
        assert httpx.get(json.loads(line)["control"], trust_env=False).status_code == 200
        assert running.end(signal.SIGTERM) == 0
    assert os.listdir(tmp_path) == []


def test_what_a_killed_server_has_left_is_gone_before_the_next_is_ready(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text(READY)
    with ready_file(file) as write:
        assert not file.exists()
        write(READY)
        assert file.read_text() == READY
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_of_a_server_that_did_not_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="in use"), ready_file(tmp_path / "ready.json"):
        raise OSError("in use")
    assert os.listdir(tmp_path) == []


def test_a_server_that_stops_leaves_the_file_of_the_next(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    with ready_file(file) as write:
        write(READY)
        file.write_text("another's")
    assert file.read_text() == "another's"


@pytest.mark.parametrize("content", ["", "{}", "keys", '["ready"]', '{"event": "over"}', "\udcff"])
def test_a_file_of_others_is_not_overwritten(content: str, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text(content, "utf-8", "surrogateescape")
    before = file.read_bytes()
    with pytest.raises(Misuse, match="has not written"), ready_file(file):
        pass
    assert file.read_bytes() == before


def test_a_path_that_cannot_be_written_is_refused_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, says in (
        (tmp_path, "something is there"),
        (tmp_path / "none" / "ready.json", f"No such file or directory: {tmp_path / 'none'}"),
        (tmp_path / "file" / "ready.json", "Not a directory"),
    ):
        assert f"--ready-file {path}: " in gives_up("--ready-file", str(path), says=says)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    gives_up("--ready-file", str(tmp_path / "link"), says="something is there")
