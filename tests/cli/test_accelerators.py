from __future__ import annotations

import os

import pytest

from holdfast.cli.accelerators import accelerator_count, cpu_count, gpu_count, xpu_count


@pytest.fixture
def machine(tmp_path):
    """Makes files of a machine: `machine("dev/nvidia0")`, with content, or as a link; its root is the result."""

    def add(path, content="", link=None):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if link is None:
            file.write_text(content)
        else:
            (tmp_path / link).mkdir(parents=True, exist_ok=True)
            file.symlink_to(tmp_path / link)
        return str(tmp_path)

    return add


def nvidia(machine, count):
    for index in range(count):
        root = machine(f"dev/nvidia{index}")
    machine("dev/nvidiactl")
    return root


def intel(machine, name, address, vendor="0x8086"):
    machine(f"sys/class/drm/{name}/device", link=f"sys/devices/{address}")
    return machine(f"sys/devices/{address}/vendor", f"{vendor}\n")


def test_the_cpus_are_those_this_process_may_use():
    before = os.sched_getaffinity(0)
    assert cpu_count() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cpu_count() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_machine_without_any(tmp_path):
    assert (gpu_count({}, str(tmp_path)), xpu_count({}, str(tmp_path)), accelerator_count({}, str(tmp_path))) == (
        0,
        0,
        0,
    )


class TestNvidia:
    def test_device_files_are_counted(self, machine):
        assert gpu_count({}, nvidia(machine, 12)) == 12

    def test_without_them_the_drivers_directory_is(self, machine):
        machine("proc/driver/nvidia/gpus/0000:01:00.0/information")
        assert gpu_count({}, machine("proc/driver/nvidia/gpus/0000:02:00.0/information")) == 2

    def test_a_container_has_only_its_share(self, machine):
        machine("proc/driver/nvidia/gpus/0000:01:00.0/information")
        machine("proc/driver/nvidia/gpus/0000:02:00.0/information")
        assert gpu_count({}, nvidia(machine, 1)) == 1

    @pytest.mark.parametrize(
        ("visible", "count"),
        [
            ("0,2", 2),
            (" 3 , 1 ", 2),
            ("", 0),
            ("-1", 0),
            ("1,-1,2", 1),
            ("0,7", 1),
            (f"0,{'9' * 5_000}", 1),
            ("NoDevFiles", 0),
            ("GPU-8932f937,GPU-a1b2c3d4", 2),
            ("MIG-1,MIG-2,MIG-3,MIG-4,MIG-5", 5),
        ],
    )
    def test_the_environment_hides_some(self, machine, visible, count):
        assert gpu_count({"CUDA_VISIBLE_DEVICES": visible}, nvidia(machine, 4)) == count

    def test_a_variable_makes_no_gpu(self, tmp_path):
        assert gpu_count({"CUDA_VISIBLE_DEVICES": "0,1"}, str(tmp_path)) == 0


class TestAmd:
    def nodes(self, machine, *ids):
        for index, gpu_id in enumerate(ids):
            root = machine(f"sys/class/kfd/kfd/topology/nodes/{index}/gpu_id", f"{gpu_id}\n")
        return root

    def test_nodes_that_are_gpus_are_counted(self, machine):
        machine("dev/kfd")
        assert gpu_count({}, self.nodes(machine, 0, 0, 4711, 4712)) == 2

    def test_not_without_the_device(self, machine):
        assert gpu_count({}, self.nodes(machine, 0, 4711)) == 0

    def test_the_environment_hides_some(self, machine):
        machine("dev/kfd")
        root = self.nodes(machine, 0, 4711, 4712)
        assert gpu_count({"HIP_VISIBLE_DEVICES": "1"}, root) == 1
        assert gpu_count({"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": ""}, root) == 2


class TestIntel:
    def test_discrete_ones_are_counted(self, machine):
        intel(machine, "card0", "0000:03:00.0")
        intel(machine, "renderD128", "0000:03:00.0")
        intel(machine, "renderD129", "0000:00:02.0")
        intel(machine, "renderD130", "0000:04:00.0", vendor="0x1002")
        root = intel(machine, "renderD131", "0000:05:00.0")
        assert xpu_count({}, root) == 2
        assert xpu_count({"ZE_AFFINITY_MASK": "1"}, root) == 1
        assert gpu_count({}, root) == 0

    def test_a_part_of_a_device_is_one(self, machine):
        assert xpu_count({"ZE_AFFINITY_MASK": "0.0,0.1"}, intel(machine, "renderD128", "0000:03:00.0")) == 2


def test_an_accelerator_is_a_gpu_or_else_an_xpu(machine):
    root = intel(machine, "renderD128", "0000:03:00.0")
    assert accelerator_count({}, root) == 1
    nvidia(machine, 3)
    assert accelerator_count({}, root) == 3
