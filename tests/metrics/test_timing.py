from __future__ import annotations

import inspect
import time

import pytest

from holdfast.metrics import configure, get_elapsed_time_ms, prof, profile


@prof
def plain(value, *, times=2):
    """Multiply."""
    return value * times


@prof(group="mine")
def grouped():
    pass


@prof()
def called_bare():
    pass


class Trainer:
    @prof
    def train(self, problem=None):
        if problem is not None:
            raise problem
        return self

    @staticmethod
    @prof
    def static():
        return 5

    @classmethod
    @prof
    def of_class(cls):
        return cls

    @profile("old")
    def older(self):
        return 1

    @profile()
    def older_without_group(self):
        return 1


@pytest.fixture
def listening(listener):
    configure(listener)
    return listener


def outcomes(listener):
    """All but the durations, whose number depends on the machine."""
    return [(group, name, value) for group, name, value in listener.values() if not name.endswith(".duration.ms")]


class TestProf:
    def test_counts_a_success_and_its_duration(self, listening):
        trainer = Trainer()
        assert trainer.train() is trainer
        (first, second) = listening.values()
        assert first == ("torchelastic", "Trainer.train.success", 1)
        assert second[:2] == ("torchelastic", "Trainer.train.duration.ms")

    @pytest.mark.parametrize("problem", [ValueError("x"), SystemExit(0), KeyboardInterrupt()])
    def test_counts_whatever_is_raised_as_a_failure(self, listening, problem):
        with pytest.raises(type(problem)) as caught:
            Trainer().train(problem)
        assert caught.value is problem
        (first, second) = listening.values()
        assert first == ("torchelastic", "Trainer.train.failure", 1)
        assert second[:2] == ("torchelastic", "Trainer.train.duration.ms")

    def test_names_a_function_by_its_module(self, listening):
        assert plain(3, times=3) == 9
        assert outcomes(listening) == [("torchelastic", f"{__name__}.plain.success", 1)]

    def test_takes_a_group_or_empty_parentheses(self, listening):
        grouped()
        called_bare()
        assert outcomes(listening) == [
            ("mine", f"{__name__}.grouped.success", 1),
            ("torchelastic", f"{__name__}.called_bare.success", 1),
        ]

    def test_works_with_static_and_class_methods(self, listening):
        assert Trainer.static() == 5
        assert Trainer.of_class() is Trainer
        assert [name for _, name, _ in outcomes(listening)] == ["Trainer.static.success", "Trainer.of_class.success"]

    def test_works_with_objects_that_can_be_called(self, listening):
        class Step:
            def __call__(self):
                return 7

        assert prof(Step())() == 7
        assert outcomes(listening)[0][1].endswith("Step.success")

    def test_keeps_name_signature_and_docstring(self):
        assert plain.__name__ == "plain"
        assert plain.__doc__ == "Multiply."
        assert str(inspect.signature(plain)) == "(value, *, times=2)"

    def test_measures_milliseconds_with_a_clock_that_is_never_set(self, listening, monkeypatch):
        readings = iter([100.0, 100.25])
        monkeypatch.setattr(time, "perf_counter", lambda: next(readings))
        Trainer().train()
        assert listening.values()[1] == ("torchelastic", "Trainer.train.duration.ms", 250)

    def test_a_handler_configured_during_the_call_hears_of_it(self, listener):
        @prof
        def start():
            configure(listener)

        start()
        assert [name.rpartition("start.")[2] for _, name, _ in listener.values()] == ["success", "duration.ms"]


def test_profile_names_metrics_by_the_function_alone(listening):
    Trainer().older()
    Trainer().older_without_group()
    assert outcomes(listening) == [
        ("old", "older.success", 1),
        ("torchelastic", "older_without_group.success", 1),
    ]


def test_elapsed_time_is_in_whole_milliseconds(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.5)
    assert get_elapsed_time_ms(999.25) == 1250
    assert isinstance(get_elapsed_time_ms(999.25), int)
    assert get_elapsed_time_ms(1001) == 0
