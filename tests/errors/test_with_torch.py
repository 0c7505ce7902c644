"""torch on one side, holdfast on the other, each in its own process."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import ChildFailedError, ErrorHandler, ProcessFailure

pytestmark = pytest.mark.torch

TORCH = "from torch.distributed.elastic.multiprocessing import errors as torch_errors\n"


def run_torch(run_python, code, **environment):
    ended = run_python("import warnings; warnings.simplefilter('ignore')\n" + TORCH + code, **environment)
    assert "ModuleNotFoundError" not in ended.stderr, ended.stderr
    return ended


def test_we_read_what_torch_records(run_python, tmp_path):
    path = tmp_path / "error.json"
    code = """
@torch_errors.record
def main():
    raise ValueError("from torch's side")

main()
"""
    assert run_torch(run_python, code, TORCHELASTIC_ERROR_FILE=path).returncode == 1
    failure = ProcessFailure(local_rank=0, pid=12, exitcode=1, error_file=str(path))
    stated = json.loads(path.read_text())["message"]
    assert failure.message == stated["extraInfo"]["py_callstack"]
    assert failure.message.endswith("ValueError: from torch's side\n")
    assert int(failure.timestamp) == int(stated["extraInfo"]["timestamp"])
    assert failure.error_file_data["message"] == stated
    assert "ValueError: from torch's side" in str(ChildFailedError("main", {0: failure}))


def test_the_first_of_two_failures_in_one_second_is_found_in_files_that_torch_wrote(run_python, tmp_path):
    code = """
import os, time
handler = torch_errors.ErrorHandler()
while time.time() % 1 > 0.3:  # both must fall into one second
    pass
for name in ("B", "A"):
    os.environ["TORCHELASTIC_ERROR_FILE"] = os.path.join(os.environ["PLACE"], name)
    handler.record_exception(ValueError(name))
    written = os.stat(os.environ["TORCHELASTIC_ERROR_FILE"]).st_mtime_ns
    while time.time_ns() < written + 50_000_000:
        pass
"""
    assert run_torch(run_python, code, PLACE=tmp_path).returncode == 0
    first, second = (ProcessFailure(0, 1, 1, str(tmp_path / name)) for name in ("B", "A"))
    assert int(first.timestamp) == int(second.timestamp)
    assert ChildFailedError("main", {1: first, 0: second}).get_first_failure() == (1, first)


@pytest.fixture
def our_file(run_python, tmp_path):
    path = tmp_path / "ours.json"
    code = """
        from holdfast.errors import record

        @record
        def main():
            raise ValueError("from our side \U0001f600")

        main()
    """
    assert run_python(code, TORCHELASTIC_ERROR_FILE=path).returncode == 1
    return path


def test_torch_reads_what_we_record(run_python, our_file, tmp_path):
    code = """
import json, os
failure = torch_errors.ProcessFailure(local_rank=0, pid=12, exitcode=1, error_file=os.environ["OURS"])
print(json.dumps([failure.timestamp, failure.message, str(torch_errors.ChildFailedError("main", {0: failure}))]))

@torch_errors.record
def agent():
    raise torch_errors.ChildFailedError("main", {0: failure})

try:
    agent()
except torch_errors.ChildFailedError:
    pass
"""
    copied = tmp_path / "copied.json"
    ended = run_torch(run_python, code, OURS=our_file, TORCHELASTIC_ERROR_FILE=copied)
    timestamp, message, summary = json.loads(ended.stdout)
    ours = json.loads(our_file.read_text())["message"]
    assert timestamp == int(ours["extraInfo"]["timestamp"])
    assert message == ours
    assert "ValueError: from our side \U0001f600" in summary
    assert json.loads(copied.read_text()) == {"message": ours | {"errorCode": 1}}

    read_back = ProcessFailure(0, 1, 1, str(copied))
    original = ProcessFailure(0, 1, 1, str(our_file))
    assert (read_back.message, read_back.timestamp) == (original.message, original.timestamp)


def test_torch_reads_whatever_we_hand_on(run_python, our_file, tmp_path, monkeypatch):
    plain, cut = tmp_path / "plain.json", tmp_path / "cut.json"
    plain.write_text('{"message": "plain text", "timestamp": 10}')
    cut.write_text('{"message": {"mess')
    sources = {"ours": our_file, "plain": plain, "cut": cut, "absent": tmp_path / "absent.json"}
    for name, source in sources.items():
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / f"handed-{name}.json"))
        ErrorHandler().dump_error_file(str(source), 3)
    failed = ChildFailedError("main", {0: ProcessFailure(0, 12, -9, "")})
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "handed-failed.json"))
    ErrorHandler().record_exception(failed)
    code = """
import json, os
place = os.environ["PLACE"]
names = ["ours", "plain", "cut", "absent", "failed"]
read = [torch_errors.ProcessFailure(0, 12, 3, os.path.join(place, f"handed-{name}.json")) for name in names]
print(json.dumps({name: [failure.message, failure.timestamp] for name, failure in zip(names, read)}))
"""
    ended = run_torch(run_python, code, PLACE=tmp_path)
    read = json.loads(ended.stdout)
    assert read["ours"][0]["errorCode"] == 3
    assert read["plain"] == ["plain text", 10]
    assert "is cut off" in read["cut"][0]
    assert "does not exist" in read["absent"][0]
    assert read["failed"][0]["errorCode"] == -9
    assert all(timestamp > 0 for _, timestamp in read.values())
