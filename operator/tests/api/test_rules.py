"""Every CEL rule accepts its accepted example and refuses its refused one, and only for its own reason."""

import pytest
from offline_admission import admit
from steelyard.api.rules import RULES, Rule, sample

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
