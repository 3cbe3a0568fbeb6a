"""Every CEL rule accepts its accepted example and refuses its refused one, and only for its own reason."""

from typing import Any

import pytest
from offline_admission import admit
from steelyard.api import names
from steelyard.api.rules import RULES, Rule, sample
from steelyard.decide import smuggling

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_accepts(rule: Rule) -> None:
    assert admit(sample(rule.accept)) == []


@each_rule
def test_rejects_with_its_message(rule: Rule) -> None:
    errors = admit(sample(rule.reject))
    assert len(errors) == 1, errors
    assert errors[0].endswith(rule.message)


def test_names_are_unique() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


@each_rule
def test_the_field_exists_on_the_type(rule: Rule) -> None:
    assert rule.field is None or rule.field in {field.alias for field in rule.on.model_fields.values()}


@each_rule
def test_message_is_one_line_that_says_enough(rule: Rule) -> None:
    assert "\n" not in rule.message
    assert 20 <= len(rule.message) <= 2048


@pytest.mark.parametrize(
    ("service", "role", "refused"),
    [
        ({"strategy": "continuous", "maxBatchTokens": 8192}, {}, True),
        ({"strategy": "chunked", "maxBatchTokens": 8192}, {}, False),
        ({"strategy": "continuous", "maxBatchTokens": 131072}, {}, False),
        ({"strategy": "continuous", "maxBatchTokens": 8192}, {"strategy": "chunked"}, False),
        ({"strategy": "continuous"}, {"maxBatchTokens": 8192}, True),
        ({"maxBatchTokens": 8192}, {"strategy": "static"}, True),
        ({"strategy": "continuous"}, {}, False),
    ],
)
def test_whole_prompts_must_fit_by_the_effective_settings(
    service: dict[str, Any], role: dict[str, Any], refused: bool
) -> None:
    """An engine without chunks exits at start when a prompt cannot fit one step (vllm-project/vllm#33109)."""
    roles = {"prefill": {"batching": role}, "decode": {"batching": role}}
    errors = admit(sample({"spec": {"model": {"contextLength": 131072}, "batching": service, **roles}}))
    assert len(errors) == (2 if refused else 0), errors


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/data", False),
        ("/modelsets", False),
        ("/etc/ssl/certs", False),
        ("/models", True),
        ("/models/extra", True),
        ("//models", True),
        ("/etc//steelyard/x", True),
        ("/etc", True),
        ("/", True),
        ("/data/../models", True),
        ("/./models", True),
        ("/etc/.", True),
        ("/.data/x.y/.z", False),
        ("/tmp", True),
    ],
)
def test_mounts_cannot_smuggle_settings(path: str, refused: bool) -> None:
    mount = {"name": "data", "mountPath": path}
    template = {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [{"name": "engine", "volumeMounts": [mount]}],
    }
    errors = admit(sample({"spec": {"decode": {"template": {"spec": template}}}}))
    assert bool(errors) == refused, errors


def test_admission_and_operator_reserve_the_same() -> None:
    """The operator judges again, for objects stored before a rule was there."""
    assert set(names.OWN_VOLUMES) == set(smuggling.OWN_VOLUMES)
    assert set(names.OWN_CONTAINERS) == set(smuggling.OWN_CONTAINERS)
    assert set(names.OWN_FOLDERS) == set(smuggling.OWN_PATHS)
