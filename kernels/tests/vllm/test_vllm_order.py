"""Our order behind vLLM's queue interface, and the settings that it reads."""

from types import SimpleNamespace

import pytest

from steelyard_kernels.vllm_plugin.scheduler import LateLastQueue, LateLastScheduler, objective

SETTINGS = {"ttft_seconds": 2.0, "prefill_tokens_per_second": 1000}


def request(key: str, prompt: int, arrived: float = 100.0, computed: int = 0, preempted: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=key, num_prompt_tokens=prompt, num_computed_tokens=computed, arrival_time=arrived, num_preemptions=preempted
    )  # fmt: skip


def queue(under_way: int = 0) -> LateLastQueue:
    return LateLastQueue(objective(SETTINGS), lambda: under_way, clock=lambda: 100.0)


def drained(line: LateLastQueue) -> str:
    keys = []
    while line:
        first = line.peek_request()
        assert line.pop_request() is first
        keys.append(first.request_id)
    return "".join(keys)


def test_the_queue_serves_in_our_order() -> None:
    line = queue()
    for one in (request("a", 900), request("b", 100), request("c", 100, arrived=90.0)):
        line.add_request(one)
    assert len(line) == 3
    assert [one.request_id for one in line] == ["a", "b", "c"]
    assert drained(line) == "bac"
    with pytest.raises(IndexError):
        line.peek_request()


def test_work_under_way_makes_others_late() -> None:
    line = queue(under_way=1500)
    line.add_request(request("a", 900))
    line.add_request(request("b", 400))
    assert drained(line) == "ba"


def test_what_was_preempted_goes_first_and_what_was_passed_on_keeps_its_place() -> None:
    line = queue()
    line.add_request(request("a", 50))
    line.prepend_requests([request("b", 900, preempted=1), request("c", 400)])
    assert drained(line) == "bac"


def test_a_client_that_left_is_gone() -> None:
    line, gone = queue(), request("b", 10)
    line.add_request(request("a", 50))
    line.add_request(gone)
    line.remove_requests([gone])
    assert drained(line) == "a"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ttft": 1}, "no setting 'ttft'; there are ttft_seconds"),
        ({"ttft_seconds": 0}, "ttft_seconds is 0"),
        ({"ttft_seconds": 2.0}, "needs steelyard.prefill_tokens_per_second"),
        ({"prefill_tokens_per_second": "fast"}, "is 'fast'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        objective(settings)


def test_vllm_takes_the_class_by_its_name() -> None:
    from vllm.config import SchedulerConfig

    name = f"{LateLastScheduler.__module__}.{LateLastScheduler.__qualname__}"
    config = SchedulerConfig.default_factory(scheduler_cls=name, max_model_len=256, is_encoder_decoder=False)
    assert config.get_scheduler_cls() is LateLastScheduler
