"""What stands in pages that people write is what the code does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from holdfast.agent import WorkerGroup, WorkerSpec
from holdfast.agent.environment import worker_environment
from holdfast.cli.options import GROUPS
from holdfast.coordination.token import TOKEN_MIN_BYTES
from holdfast.errors.kind import FailureKind
from holdfast.rendezvous import RendezvousParameters, known_settings, rendezvous_handler_registry

IMPORTS_TORCH = True

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OPTIONS = [option for options in GROUPS.values() for option in options]


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def first_cells(markdown: str, heading: str) -> str:
    """The first column of the tables below a heading."""
    section = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^## |\Z)", markdown, re.DOTALL | re.MULTILINE)[1]
    return "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))


def test_every_option_has_a_row_in_the_page_about_moving():
    flags = re.findall(r"`(--?[\w-]+)`", first_cells(read("moving-from-torchrun.md"), "Flag by flag"))
    assert sorted(flags) == sorted(name for option in OPTIONS for name in option.names)


def test_options_that_torchrun_does_not_have_are_called_new():
    _, new = read("moving-from-torchrun.md").split("New in holdfast:")
    flags = set(re.findall(r"`(--[\w-]+)`", first_cells(f"## Flags\n{new}", "Flags")))
    assert flags == {option.names[-1] for option in OPTIONS if option.is_ours}


@pytest.mark.torch
def test_every_option_of_torchrun_is_in_the_page_about_moving():
    from torch.distributed.run import get_args_parser

    cells = first_cells(read("moving-from-torchrun.md"), "Flag by flag")
    for action in get_args_parser()._actions:
        for name in action.option_strings:
            assert name in ("-h", "--help") or f"`{name.replace('_', '-')}`" in cells


@pytest.mark.torch
def test_the_imports_of_the_page_about_moving_are_there():
    import importlib

    import holdfast

    rows = re.findall(
        r"^\| `(torch[\w.]+)` \| \[`(holdfast\.\w+)`\]\(\S+\): (.*) \|$", read("moving-from-torchrun.md"), re.MULTILINE
    )
    assert len(rows) > 10
    for theirs, ours, names in rows:
        there, here = importlib.import_module(theirs), importlib.import_module(ours)
        for name in re.findall(r"`(\w+)`", names):
            assert hasattr(here, name), f"{ours}.{name}"
            assert hasattr(there, name) or name in ("LocalElasticAgent", "SignalException"), f"{theirs}.{name}"
    assert {ours for _, ours, _ in rows} <= {f"holdfast.{name}" for name in holdfast.__all__}


def test_every_variable_of_a_worker_is_in_the_reference():
    parameters = RendezvousParameters("c10d", "", "run", 1, 1)
    handler = rendezvous_handler_registry.create_handler(parameters)
    group = WorkerGroup(WorkerSpec("r", 2, handler, entrypoint="true", virtual_local_rank=True))
    group.generation, group.coordinator_port = 1, 1
    cells = first_cells(read("reference/environment.md"), "What a worker finds")
    for name in worker_environment(group, group.workers[0], 0, {}):
        assert f"`{name}`" in cells, name


def test_every_variable_that_the_source_names_is_in_the_reference():
    known = read("reference/environment.md")
    pattern = re.compile(r"(HOLDFAST|TORCHELASTIC|TORCH|SLURM|XDG|JAX)_[A-Z][A-Z_]*|LOGLEVEL|NO_COLOR|PYTHON_EXEC")
    for path in (ROOT / "src").rglob("*.py"):
        if "doctor" in str(path):
            continue  # it looks at variables of others
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and pattern.fullmatch(node.value):
                assert f"`{node.value}`" in known, f"{node.value}, which {path.relative_to(ROOT)} reads or sets"


def test_every_setting_of_the_rendezvous_is_explained():
    explained = read("many-machines.md") + read("reference/settings.md")
    for key in set().union(*known_settings.KEYS.values()):
        assert f"`{key}`" in explained, key


def test_no_page_shows_a_token_that_works_when_it_is_copied():
    for page in PAGES:
        for value in re.findall(r"(?:HOLDFAST_TOKEN|\btoken)=(\S+)", page.read_text()):
            is_refused = len(value) < TOKEN_MIN_BYTES
            assert is_refused or value.startswith("$("), f"{page.name}: have the reader make one, not copy {value}"


def test_nobody_is_told_to_install_the_package_of_somebody_else():
    """Until the first release the name on the public index is not ours: it takes a clone, or a wheel."""
    for path in (*PAGES, *(ROOT / "src").rglob("*.py")):
        assert not re.search(r"pip install (?:'|\")?holdfast", path.read_text()), path


def test_every_kind_of_failure_is_explained():
    cells = first_cells(read("failures.md"), "Kinds")
    for kind in FailureKind:
        assert kind.value in cells


def test_every_entry_point_group_is_named():
    named = read("reference/plug-ins.md")
    for path in (ROOT / "src").rglob("*.py"):
        for group in re.findall(
            r'"((?:holdfast|torchrun)\.(?:rendezvous|handlers|\w+_handlers|logs_specs))"', path.read_text()
        ):
            assert f"`{group}`" in named or group == "holdfast.rendezvous", group


def test_fenced_code_in_a_docstring_becomes_a_block():
    from docstrings import fences_as_blocks

    assert fences_as_blocks(["Text.", "```python", "x = 1", "```", "More."]) == [
        *("Text.", "", ".. code-block:: python", "", "   x = 1", "", "More.")
    ]


def test_letters_may_follow_upon_a_literal_in_a_docstring():
    from docstrings import with_joints

    assert with_joints("`Store`s and `a` to `b`, ``c``d") == r"`Store`\ s and `a` to `b`, ``c``\ d"


def test_defaults_in_a_signature_are_written_as_in_code():
    from docstrings import plain_defaults

    assert plain_defaults("(tee: Std = <Std.NONE: 0>)") == "(tee: Std = Std.NONE)"


def test_a_limit_is_a_constant_with_a_reason():
    from source_facts import all_limits

    limits = {(limit.module, limit.name): limit for limit in all_limits()}
    assert limits["holdfast.coordination.model", "KEY_MAX_BYTES"].text == "1 KiB"
    assert limits["holdfast.coordination.model", "TRANSACTION_MAX_BYTES"].text == "1.25 MiB"
    assert limits["holdfast.rendezvous.membership", "FENCE_AT"].text == "0.9"
    assert limits["holdfast.coordination.server", "UNPROVEN_MAX"].text == "4,096"
    assert not [limit for limit in limits.values() if not limit.meaning]


def test_a_state_that_has_no_place_in_the_picture_is_an_error(monkeypatch):
    import pictures

    monkeypatch.delitem(pictures.PLACES, "PAUSED")
    with pytest.raises(KeyError):
        pictures.states()
