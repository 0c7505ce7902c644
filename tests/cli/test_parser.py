from __future__ import annotations

import pytest

from holdfast.cli import get_args_parser, parse_args
from holdfast.cli.options import GROUPS, comma_separated

OPTIONS = [option for options in GROUPS.values() for option in options]


def refusal(words, capsys):
    """The one line on stderr that a command line is refused with."""
    with pytest.raises(SystemExit) as left:
        parse_args(words)
    out, err = capsys.readouterr()
    assert (left.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("holdfast run: error: ")
    return err.removeprefix("holdfast run: error: ").rstrip("\n").removesuffix(" (see holdfast run --help)")


class TestNames:
    @pytest.mark.parametrize("option", OPTIONS, ids=repr)
    def test_dashes_and_underscores_are_the_same(self, option):
        others = {"start_method": "fork", "numa_binding": "node", "store_host": "rank0", "restart_policy": "always"}
        value = [] if option.is_flag else [others.get(option.dest, "7")]
        parsed = [vars(parse_args([spelling, *value, "script"])) for spelling in option.spellings]
        assert f"--{option.dest}" in option.spellings
        assert parsed.count(parsed[0]) == len(parsed)
        assert parsed[0] != vars(parse_args(["script"]))

    @pytest.mark.parametrize("name", ["--nproc", "--nproc-per", "--nproc_per", "--np"])
    def test_two_spellings_of_one_option_are_no_ambiguity(self, name):
        assert parse_args([name, "3", "x"]).nproc_per_node == "3"
        assert parse_args([f"{name}=3", "x"]).nproc_per_node == "3"

    def test_names_may_be_shortened(self):
        assert parse_args(["--redirect=3", "x"]).redirects == "3"
        assert parse_args(["--stand", "x"]).standalone is True

    def test_an_option_of_ours_makes_no_name_of_torchruns_ambiguous(self):
        assert parse_args(["--e", "console", "x"]).event_log_handler == "console"
        assert parse_args(["--ex", "5", "x"]).exit_barrier_timeout == 5.0

    def test_an_ambiguous_name_is_refused_with_what_it_can_be(self, capsys):
        said = refusal(["--rdzv", "x", "y"], capsys)
        assert "ambiguous" in said
        assert "--rdzv-backend, --rdzv-endpoint, --rdzv-id, --rdzv-conf" in said
        assert "_" not in said


class TestTheProgramsOwn:
    def test_what_follows_the_script_is_passed_on(self):
        rest = ["--nnodes", "3", "-m", "--", "-x", "", "--help"]
        parsed = parse_args(["--nnodes", "2", "train.py", *rest])
        assert (parsed.nnodes, parsed.training_script, parsed.training_script_args) == ("2", "train.py", rest)

    def test_there_need_not_be_any(self):
        assert parse_args(["train.py"]).training_script_args == []


class TestRefusals:
    def test_a_missing_script(self, capsys):
        assert refusal([], capsys) == "the following arguments are required: script"
        assert refusal(["--nnodes", "2"], capsys) == "the following arguments are required: script"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--max-restarts", "x"], "--max-restarts 'x': write a whole number"),
            (["--max_restarts=1.5"], "--max-restarts '1.5': write a whole number"),
            (["--monitor-interval", "x"], "--monitor-interval 'x': write a number such as 0.5"),
            (["--start-method", "x"], "--start-method 'x': write one of spawn, fork, forkserver"),
            (["--numa-binding", "x"], "--numa-binding 'x': write one of node, socket, exclusive, core-complex"),
            (["--nonsense"], "unrecognized arguments: --nonsense"),
            (["--non\nsense"], "unrecognized arguments: --non sense"),
            (["--nproc-per-nodee", "2"], "unrecognized arguments: --nproc-per-nodee; did you mean --nproc-per-node?"),
            (["--max_restart_s=2"], "unrecognized arguments: --max_restart_s=2; did you mean --max-restarts?"),
        ],
    )
    def test_a_value_is_shown_with_what_would_be_right(self, words, said, capsys):
        assert refusal([*words, "x"], capsys) == said

    @pytest.mark.parametrize(
        ("name", "text", "said"),
        [
            ("PET_MAX_RESTARTS", "x", "PET_MAX_RESTARTS='x': write a whole number"),
            ("PET_START_METHOD", "x", "PET_START_METHOD='x': write one of spawn, fork, forkserver"),
        ],
    )
    def test_a_variable_is_named(self, name, text, said, monkeypatch, capsys):
        monkeypatch.setenv(name, text)
        assert refusal(["x"], capsys) == said

    def test_a_variable_that_is_not_to_blame_is_not_named(self, monkeypatch, capsys):
        monkeypatch.setenv("PET_MAX_RESTARTS", "2")
        assert refusal(["--max-restarts", "x", "y"], capsys) == "--max-restarts 'x': write a whole number"


class TestHelp:
    @pytest.fixture
    def text(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "100")
        return get_args_parser().format_help()

    def test_it_says_how_to_use_it_in_one_line(self, text):
        assert text.startswith("usage: holdfast run [options] script [arguments]\n\n")

    def test_every_option_is_under_its_heading_with_one_spelling(self, text):
        for title, options in GROUPS.items():
            _, _, section = text.partition(f"\n{title}:\n")
            section = section.partition("\n\n")[0]
            for option in options:
                assert f"  {', '.join(option.names)}{f' {option.metavar}' if option.metavar else ''}" in section
        spellings = [option.spellings[-1] for option in OPTIONS if "_" in option.spellings[-1]]
        assert len(spellings) > 20
        assert not [spelling for spelling in spellings if spelling in text]

    def test_every_option_is_explained(self, text):
        assert all(option.help for option in OPTIONS)
        assert "(default: SIGTERM,SIGINT,SIGHUP,SIGQUIT)" in text
        assert "The exit code is 0" in text

    def test_it_is_as_wide_as_the_terminal_up_to_a_limit(self, monkeypatch):
        widths = {}
        for columns in (60, 100, 400):
            monkeypatch.setenv("COLUMNS", str(columns))
            section = get_args_parser().format_help().partition("\nhow many:")[2].partition("\nOption names can")[0]
            widths[columns] = max(map(len, section.splitlines()))
        assert widths[60] < 60 <= widths[100] < 100 <= widths[400] <= 110

    @pytest.mark.parametrize("columns", ["9" * 5_000, "-1", "x", "0"])
    def test_a_width_that_is_none_does_not_keep_it_from_being_shown(self, monkeypatch, columns):
        monkeypatch.setenv("COLUMNS", columns)
        assert get_args_parser().format_help().startswith("usage: holdfast run")

    def test_another_program_can_add_to_it(self):
        parser = get_args_parser()
        parser.add_argument("--use-env", action="store_true", help="of another program")
        assert parser.parse_args(["--use-env", "x"]).use_env is True
        assert "of another program" in parser.format_help()


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a,,b,c", ["a,b", "c"]),
        ("", [""]),
        (",,,", [",", ""]),
        ("a,,,,b", ["a,,b"]),
    ],
)
def test_two_commas_are_one_that_separates_nothing(text, items):
    assert comma_separated(text) == items
