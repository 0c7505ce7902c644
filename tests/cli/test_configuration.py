from __future__ import annotations

import os
import re

import pytest

from holdfast.cli import accelerators, config_from_args, determine_local_world_size, parse_args, parse_min_max_nnodes
from holdfast.errors import InputError
from holdfast.processes import DefaultLogsSpecs, Std


@pytest.fixture
def config(script):
    """The configuration of a job with these options."""
    path = script()
    return lambda *options: config_from_args(parse_args([*options, path]))[0]


@pytest.fixture
def refused(config):
    """What is said of options that cannot be used."""

    def refused(*options):
        with pytest.raises(InputError) as raised:
            config(*options)
        return str(raised.value)

    return refused


class TestSize:
    @pytest.mark.parametrize(("text", "nodes"), [("1", (1, 1)), ("2:4", (2, 4)), ("3:3", (3, 3)), (" 2", (2, 2))])
    def test_nodes(self, text, nodes):
        assert parse_min_max_nnodes(text) == nodes

    @pytest.mark.parametrize("text", ["", "x", "0", "0:1", "3:1", "-1", "1:", ":1", "1:2:3", "1.5"])
    def test_no_number_of_nodes(self, text):
        with pytest.raises(InputError, match=f"^--nnodes '{re.escape(text)}': .*such as 2 or 1:4$"):
            parse_min_max_nnodes(text)
        with pytest.raises(RuntimeError, match="--nnodes"):
            parse_min_max_nnodes(text)

    def test_workers_are_a_number(self):
        assert determine_local_world_size("16") == 16

    @pytest.mark.parametrize("text", ["0", "-1", "many", "", "1.5", "GPU"])
    def test_no_number_of_workers(self, text):
        with pytest.raises(InputError, match=f"^--nproc-per-node '{re.escape(text)}': "):
            determine_local_world_size(text)

    @pytest.mark.parametrize(
        ("gpus", "xpus", "expected"),
        [
            (0, 0, {"cpu": 5, "auto": 5, "gpu": None, "xpu": None}),
            (0, 2, {"cpu": 5, "auto": 2, "gpu": None, "xpu": 2}),
            (3, 2, {"cpu": 5, "auto": 3, "gpu": 3, "xpu": 2}),
        ],
    )
    def test_workers_for_what_the_machine_has(self, monkeypatch, gpus, xpus, expected):
        monkeypatch.setattr(accelerators, "cpu_count", lambda: 5)
        monkeypatch.setattr(accelerators, "gpu_count", lambda *_: gpus)
        monkeypatch.setattr(accelerators, "xpu_count", lambda *_: xpus)
        for word, count in expected.items():
            if count is None:
                with pytest.raises(InputError, match=f"^--nproc-per-node '{word}': no {word} found"):
                    determine_local_world_size(word)
            else:
                assert determine_local_world_size(word) == count


class TestOneNode:
    """A single node needs no port that another job may have, and gets an id of its own."""

    @pytest.mark.parametrize(
        "options",
        [
            [],
            ["--nnodes", "1"],
            ["--master-addr", "node7"],
            ["--master-port", "0"],
            ["--standalone"],
            ["--standalone", "--nnodes", "1:4"],
            ["--standalone", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node7:1", "--node-rank", "3"],
            ["--standalone", "--master-port", "1234"],
        ],
    )
    def test_it_meets_nobody(self, config, options):
        made = config(*options)
        assert (made.min_nodes, made.max_nodes) == (1, 1)
        assert (made.rdzv_backend, made.rdzv_endpoint) == ("static", "")
        assert made.rdzv_configs == {"rank": 0, "timeout": 900}
        assert re.fullmatch("[0-9a-f]{32}", made.run_id)
        assert made.run_id != config(*options).run_id

    @pytest.mark.parametrize("options", [[], ["--standalone"]])
    def test_an_id_that_was_given_is_kept(self, config, options):
        assert config("--rdzv-id", "mine", *options).run_id == "mine"

    def test_an_empty_id_is_no_id(self, config):
        assert re.fullmatch("[0-9a-f]{32}", config("--rdzv-id", "").run_id)

    def test_several_nodes_cannot_be_one(self, refused):
        assert (
            refused("--standalone", "--nnodes", "2")
            == "--nnodes '2': --standalone means one node; remove one of the two"
        )

    def test_a_port_that_was_given_is_used(self, config):
        made = config("--master-port", "1234")
        assert (made.rdzv_backend, made.rdzv_endpoint, made.run_id) == ("static", "127.0.0.1:1234", "none")
        made = config("--rdzv-endpoint", "node7:1234")
        assert (made.rdzv_backend, made.rdzv_endpoint) == ("static", "node7:1234")


class TestSeveralNodes:
    @pytest.mark.parametrize(
        ("options", "endpoint"),
        [
            ([], "127.0.0.1:29500"),
            (["--master-addr", "node7"], "node7:29500"),
            (["--master-addr", "node7", "--master-port", "1"], "node7:1"),
            (["--master-addr", "fd00::1", "--master-port", "1"], "[fd00::1]:1"),
            (["--master-addr", "[fd00::1]", "--master-port", "1"], "[fd00::1]:1"),
            (["--rdzv-endpoint", "node8:2", "--master-port", "1"], "node8:2"),
        ],
    )
    def test_static_nodes_know_their_rank_and_the_master(self, config, options, endpoint):
        made = config("--nnodes", "3", "--node-rank", "2", "--rdzv-id", "job", *options)
        assert (made.min_nodes, made.max_nodes, made.run_id) == (3, 3, "job")
        assert (made.rdzv_backend, made.rdzv_endpoint) == ("static", endpoint)
        assert made.rdzv_configs["rank"] == 2

    def test_a_node_may_ask_for_its_rank_where_ranks_are_given_out(self, config):
        options = ["--nnodes", "1:3", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node7"]
        assert "rank" not in config(*options).rdzv_configs
        assert config(*options, "--node-rank", "0").rdzv_configs["rank"] == 0
        assert config(*options, "--node-rank", "2").rdzv_configs["rank"] == 2

    def test_with_another_backend_only_the_endpoint_counts(self, config):
        made = config("--nnodes", "1:3", "--rdzv-backend", "c10d", "--master-addr", "node7")
        assert (made.rdzv_backend, made.rdzv_endpoint, made.run_id) == ("c10d", "", "none")
        assert made.rdzv_configs == {"timeout": 900}
        assert config("--rdzv-backend", "c10d", "--rdzv-endpoint", "node7:1").rdzv_endpoint == "node7:1"

    @pytest.mark.parametrize("rank", ["-1", "3", "4"])
    def test_a_rank_that_no_node_has(self, refused, rank):
        assert refused("--nnodes", "3", "--node-rank", rank).startswith(
            f"--node-rank {rank}: 3 nodes have ranks 0 to 2"
        )

    def test_node_0_has_an_address(self, refused):
        assert refused("--nnodes", "2", "--master-addr", "") == "--master-addr '': write the address of node 0"

    def test_nodes_cannot_each_choose_a_port(self, refused):
        assert refused("--nnodes", "2", "--master-port", "0").startswith("--master-port 0: ")


class TestSettingsOfTheBackend:
    @pytest.mark.parametrize(
        ("text", "settings"),
        [
            ("", {}),
            ("a=1", {"a": "1"}),
            (" a = 1 , b=x=y ", {"a": "1", "b": "x=y"}),
            ("'a=1,b=2'", {"a": "1", "b": "2"}),
            ('"a=1"', {"a": "1"}),
            ("''", {}),
            ("timeout=5", {"timeout": "5"}),
        ],
    )
    def test_pairs(self, config, text, settings):
        assert config("--rdzv-conf", text).rdzv_configs == {"timeout": 900, "rank": 0, **settings}

    @pytest.mark.parametrize("key", ["backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr", "self"])
    def test_what_all_backends_have_is_no_setting(self, refused, key):
        assert refused("--rdzv-conf", f"a=1,{key}=2").startswith(f"--rdzv-conf 'a=1,{key}=2': {key} is not a setting")

    @pytest.mark.parametrize("text", ["a", "a=", "=1", "a=1,", ",", "a=1,b"])
    def test_no_pairs(self, refused, text):
        assert refused("--rdzv-conf", text) == (
            f"--rdzv-conf {text!r}: write KEY=VALUE pairs separated by commas, such as join_timeout=60"
        )


class TestThreads:
    def test_several_workers_get_one_each(self, config):
        config("--nproc-per-node", "2")
        assert os.environ["OMP_NUM_THREADS"] == "1"

    def test_what_was_set_stays(self, config, monkeypatch):
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        config("--nproc-per-node", "2")
        assert os.environ["OMP_NUM_THREADS"] == "7"

    def test_one_worker_has_them_all(self, config):
        config("--nproc-per-node", "1")
        assert "OMP_NUM_THREADS" not in os.environ


class TestLogs:
    def test_they_are_as_asked_for(self, config, tmp_path):
        logs = str(tmp_path / "logs")
        made = config("--log-dir", logs, "-r", "0:1,12:3", "-t", "2", "--local-ranks-filter", "0, 2")
        expected = DefaultLogsSpecs(logs, {0: Std.OUT, 12: Std.ALL}, Std.ERR, {0, 2})
        assert made.logs_specs == expected
        assert os.path.isdir(logs)

    def test_by_default_they_are_in_a_fresh_directory(self, config, tmp_path):
        root = config().logs_specs.root_log_dir
        assert re.fullmatch(re.escape(str(tmp_path)) + r"/torchelastic_\w+", root)

    def test_nothing_is_made_for_a_job_that_is_refused(self, refused, tmp_path):
        before = set(os.listdir(tmp_path))
        refused("--rdzv-backend", "nonsense")
        refused("--event-log-handler", "nonsense")
        refused("--redirects", "9")
        refused("--log-dir", str(tmp_path / "logs"), "--local-ranks-filter", "x")
        assert set(os.listdir(tmp_path)) == before

    @pytest.mark.parametrize("text", ["x", "0,", "-1", "0:1", "1.5"])
    def test_no_ranks(self, refused, text):
        assert refused("--local-ranks-filter", text).startswith(f"--local-ranks-filter {text!r}: write local ranks")

    @pytest.mark.parametrize("option", ["--redirects", "--tee"])
    def test_no_streams(self, refused, option):
        assert refused(option, "4").startswith(f"{option} '4': write 0 (none), 1 (stdout), 2 (stderr) or 3 (both)")

    def test_a_directory_that_cannot_be_made(self, refused, tmp_path):
        (tmp_path / "file").touch()
        place = str(tmp_path / "file" / "logs")
        assert refused("--log-dir", place).startswith(f"--log-dir {place!r}: cannot make the log directory")

    def test_a_directory_that_is_a_file_is_the_error_that_torchs_callers_know(self, config, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(InputError) as raised:
            config("--log-dir", str(tmp_path / "file"))
        assert isinstance(raised.value, NotADirectoryError)

    def test_a_directory_that_cannot_be_written(self, refused, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path) or not mode & os.W_OK)
        assert refused("--log-dir", str(tmp_path)).startswith(f"--log-dir {str(tmp_path)!r}: not writable")

    def test_an_unknown_implementation(self, refused):
        assert refused("--logs-specs", "nonsense").startswith("--logs-specs 'nonsense': unknown name")


class TestNumbersAndNames:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--max-restarts", "-1"], "--max-restarts -1: write a number of restarts, 0 or more"),
            (["--monitor-interval", "0"], "--monitor-interval 0: write a number of seconds above 0"),
            (["--monitor-interval", "-0.5"], "--monitor-interval -0.5: write a number of seconds above 0"),
            (["--monitor-interval", "inf"], "--monitor-interval inf: write a number of seconds above 0"),
            (["--monitor-interval", "nan"], "--monitor-interval nan: write a number of seconds above 0"),
            (["--shutdown-timeout", "-1"], "--shutdown-timeout -1: write a number of seconds, 0 or more"),
            (["--exit-barrier-timeout", "-1"], "--exit-barrier-timeout -1: write a number of seconds, 0 or more"),
            (["--exit-barrier-timeout", "nan"], "--exit-barrier-timeout nan: write a number of seconds, 0 or more"),
            (["--stop-grace", "-1"], "--stop-grace -1: write a number of seconds, 0 or more"),
            (["--master-port", "70000"], "--master-port 70000: write a port from 1 to 65535"),
            (["--master-port", "-1"], "--master-port -1: write a port from 1 to 65535"),
        ],
    )
    def test_a_number_that_means_nothing(self, refused, options, said):
        assert refused(*options) == said

    def test_another_launcher_may_hand_numbers_over_as_text(self, script):
        args = parse_args(["--nnodes", "2", "--node-rank", "1", "--master-addr", "node0", script()])
        args.master_port, args.max_restarts, args.monitor_interval = "29501", "3", "0.5"
        made, _, _ = config_from_args(args)
        assert (made.rdzv_endpoint, made.max_restarts, made.monitor_interval) == ("node0:29501", 3, 0.5)
        assert args.master_port == "29501", "what was handed over stays as it is"
        args.master_port = "first"
        with pytest.raises(InputError, match=r"^--master-port 'first': write a whole number$"):
            config_from_args(args)

    @pytest.mark.parametrize(
        ("options", "start"),
        [
            (["--rdzv-backend", "nonsense"], "--rdzv-backend 'nonsense': unknown backend; choose from "),
            (["--event-log-handler", "nonsense"], "--event-log-handler 'nonsense': unknown name"),
            (["--signals-to-handle", "SIGTERM,SIGX"], "--signals-to-handle 'SIGTERM,SIGX': unknown signal 'SIGX'"),
            (["--signals-to-handle", "SIGKILL"], "--signals-to-handle 'SIGKILL': 'SIGKILL' cannot be caught"),
        ],
    )
    def test_a_name_that_nothing_has(self, refused, options, start):
        assert refused(*options).startswith(start)

    def test_the_known_backends_are_listed(self, refused):
        assert refused("--rdzv-backend", "nonsense").endswith("static")

    def test_the_rest_is_handed_over(self, config, monkeypatch):
        monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[${rank}]")
        made = config(
            *("--nproc-per-node", "3", "--role", "trainer", "--max-restarts", "4", "--monitor-interval", "0.5"),
            *("--start-method", "fork", "--local-addr", "node7", "--event-log-handler", "console"),
            *("--signals-to-handle", "SIGUSR1", "--duplicate-stdout-filters", "a,b", "--shutdown-timeout", "0"),
            *("--duplicate-stderr-filters", "c", "--virtual-local-rank", "--exit-barrier-timeout", "7.5"),
        )
        expected = {
            "nproc_per_node": 3,
            "role": "trainer",
            "max_restarts": 4,
            "monitor_interval": 0.5,
            "start_method": "fork",
            "local_addr": "node7",
            "event_log_handler": "console",
            "signals_to_handle": "SIGUSR1",
            "duplicate_stdout_filters": ["a", "b"],
            "duplicate_stderr_filters": ["c"],
            "shutdown_timeout": 0,
            "virtual_local_rank": True,
            "exit_barrier_timeout": 7.5,
            "log_line_prefix_template": "[${rank}]",
        }
        assert {name: getattr(made, name) for name in expected} == expected

    def test_a_binding_is_asked_for_where_there_is_something_to_bind_to(self, config, monkeypatch):
        monkeypatch.setattr(accelerators, "gpu_count", lambda: 0)
        assert config("--numa-binding", "node").numa_options is None
        monkeypatch.setattr(accelerators, "gpu_count", lambda: 2)
        assert config("--numa-binding", "node").numa_options == "node"
        assert config().numa_options is None
