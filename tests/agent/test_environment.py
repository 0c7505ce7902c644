"""What a worker finds in its environment and its arguments."""

from __future__ import annotations

import pytest

from holdfast.agent import Worker, WorkerGroup, WorkerSpec
from holdfast.agent.environment import line_prefixes, substitute_local_rank, worker_arguments, worker_environment
from holdfast.errors import InputError
from holdfast.settings import JobSettings


@pytest.fixture
def group_of(rdzv):
    """Makes a group of two nodes of two workers, of which this is the second; keywords of WorkerSpec."""

    def make(**spec):
        spec = {"role": "trainer", "local_world_size": 2, "entrypoint": "true", "max_restarts": 3, **spec}
        group = WorkerGroup(WorkerSpec(rdzv_handler=rdzv, **spec))
        group.group_rank, group.group_world_size = 1, 2
        group.master_addr, group.master_port = "node0", 29500
        return group

    return make


WORKER = Worker(local_rank=1, global_rank=3, role_rank=3, world_size=4, role_world_size=4)


def test_it_is_torchs_contract(group_of):
    assert worker_environment(group_of(), WORKER, 2, {}) == {
        "LOCAL_RANK": "1",
        "RANK": "3",
        "GROUP_RANK": "1",
        "ROLE_RANK": "3",
        "ROLE_NAME": "trainer",
        "LOCAL_WORLD_SIZE": "2",
        "WORLD_SIZE": "4",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_WORLD_SIZE": "4",
        "MASTER_ADDR": "node0",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "the-run",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def test_the_users_own_handling_of_nccls_errors_stays(group_of):
    env = worker_environment(group_of(), WORKER, 0, {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"})
    assert env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"


@pytest.mark.parametrize("master", [{"master_addr": "elsewhere"}, {"master_port": 1234}])
def test_a_specification_that_names_a_master_has_it_serve_the_store(group_of, master):
    assert worker_environment(group_of(**master), WORKER, 0, {})["TORCHELASTIC_USE_AGENT_STORE"] == "False"


def test_signals_and_generation_are_there_where_they_are_known(group_of):
    group = group_of(settings=JobSettings(1, 1, 2, signals_to_handle="SIGTERM"))
    group.generation = 5
    env = worker_environment(group, WORKER, 0, {})
    assert (env["TORCHELASTIC_SIGNALS_TO_HANDLE"], env["HOLDFAST_GENERATION"]) == ("SIGTERM", "5")


def test_secrets_of_the_agent_are_blank(group_of):
    env = worker_environment(group_of(), WORKER, 0, {"HOLDFAST_TOKEN": "a-secret", "OTHER": "x"})
    assert env["HOLDFAST_TOKEN"] == ""
    assert "OTHER" not in env, "inherited"


class TestJax:
    @pytest.fixture
    def group(self, group_of):
        group = group_of()
        group.coordinator_port = 1234
        return group

    def test_each_worker_has_a_device_of_its_own(self, group):
        env = worker_environment(group, WORKER, 0, {})
        assert {name: value for name, value in env.items() if name.startswith("JAX")} == {
            "JAX_COORDINATOR_ADDRESS": "node0:1234",
            "JAX_NUM_PROCESSES": "4",
            "JAX_PROCESS_ID": "3",
            "JAX_LOCAL_DEVICE_IDS": "1",
        }

    def test_what_the_user_says_of_devices_counts(self, group):
        assert "JAX_LOCAL_DEVICE_IDS" not in worker_environment(group, WORKER, 0, {"JAX_LOCAL_DEVICE_IDS": "7"})

    def test_a_single_worker_has_all_devices(self, group_of):
        group = group_of(local_world_size=1)
        group.coordinator_port = 1234
        assert "JAX_LOCAL_DEVICE_IDS" not in worker_environment(group, Worker(0, 1, 1, 2, 2), 0, {})

    def test_a_worker_that_sees_one_device_uses_the_first(self, group_of):
        group = group_of(virtual_local_rank=True)
        group.coordinator_port = 1234
        assert worker_environment(group, WORKER, 0, {})["JAX_LOCAL_DEVICE_IDS"] == "0"

    def test_an_address_with_colons_is_in_brackets(self, group):
        group.master_addr = "fd00::1"
        assert worker_environment(group, WORKER, 0, {})["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:1234"


class TestVirtualLocalRank:
    @pytest.mark.parametrize(
        ("visible", "device"), [(None, "1"), ("4,6", "6"), (" 4 , 6 ", "6"), ("GPU-a,GPU-b,GPU-c", "GPU-b")]
    )
    def test_a_worker_is_the_first_and_sees_its_own_device(self, group_of, visible, device):
        agents = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        env = worker_environment(group_of(virtual_local_rank=True), WORKER, 0, agents)
        assert (env["LOCAL_RANK"], env["CUDA_VISIBLE_DEVICES"]) == ("0", device)

    def test_too_few_devices_are_bad_input(self, group_of):
        with pytest.raises(InputError, match=r"CUDA_VISIBLE_DEVICES='4': it lists 1 devices.* at least 2 on this node"):
            worker_environment(group_of(virtual_local_rank=True), WORKER, 0, {"CUDA_VISIBLE_DEVICES": "4"})


@pytest.mark.parametrize(
    ("argument", "replaced"),
    [
        ("--gpu=${local_rank}", "--gpu=3"),
        ("$local_rank/$local_rank", "3/3"),
        ("${rank} costs $5, 100$", "${rank} costs $5, 100$"),
        ("plain", "plain"),
    ],
)
def test_an_argument_may_have_the_local_rank(argument, replaced):
    assert substitute_local_rank(argument, 3) == replaced


def test_arguments_of_a_command_are_texts_and_those_of_a_function_are_left_alone(group_of):
    assert worker_arguments(group_of(args=("${local_rank}", 5)).spec, 1) == ("1", "5")
    values = ("${local_rank}", 5, {})
    assert worker_arguments(group_of(entrypoint=print, args=values).spec, 1) is values


def test_prefixes_of_lines_come_from_a_template():
    envs = {0: {"ROLE_NAME": "trainer", "RANK": "4"}, 1: {"ROLE_NAME": "trainer", "RANK": "5"}}
    assert line_prefixes("[${role_name} ${rank}/${local_rank} $x]", envs) == {
        0: "[trainer 4/0 $x]",
        1: "[trainer 5/1 $x]",
    }
    assert line_prefixes(None, envs) is None
    assert line_prefixes("", envs) is None
