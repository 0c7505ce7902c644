"""The witness of how slow the machine is."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from chaos import witness
from holdfast.processes.file_changes import Inotify

IN_MODIFY = 0x2
DEADLINE_S = 60


class Member(HTTPServer):
    """Answers as a member of etcd does, but only when it may."""

    def __init__(self):
        self.may_answer = threading.Event()
        self.is_asked = threading.Event()
        self.asked = 0
        super().__init__(("127.0.0.1", 0), _Answer)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.server_address[1]}"

    def close(self):
        self.may_answer.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.asked += 1
        self.server.is_asked.set()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.may_answer.wait(DEADLINE_S)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def member():
    member = Member()
    yield member
    member.close()


def test_a_member_that_is_down_is_passed_over(member):
    member.may_answer.set()
    gone = "127.0.0.1:1"
    for turn in range(2):
        witness.ask([gone, member.endpoint], turn)
    assert member.asked == 2
    witness.ask([gone], 0)
    witness.ask([], 0)


def test_an_answer_that_takes_long_is_written_down(member, tmp_path):
    path = tmp_path / "slow.jsonl"
    path.touch()
    changes = Inotify()
    changes.watch_once(str(path), IN_MODIFY)
    process = subprocess.Popen([sys.executable, witness.__file__, "0.3", path, member.endpoint])
    try:
        assert member.is_asked.wait(DEADLINE_S)
        time.sleep(0.5)  # what takes long
        member.may_answer.set()
        assert select.select([changes.fd], [], [], DEADLINE_S)[0]
        (line, *_) = path.read_text().splitlines()
        assert json.loads(line)["took_s"] > 0.3
    finally:
        changes.close()
        process.kill()
        process.wait()
