"""Names of children: stable over versions of the operator, valid, and different for different owners."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steelyard.api import names

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
owners = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        (names.engines("chat", "prefill"), "chat-prefill"),
        (names.engines("chat", "decode"), "chat-decode"),
        (names.engines("chat", "aggregated"), "chat-aggregated"),
        (names.gateway("chat"), "chat"),
        (names.gateway_settings("chat"), "chat-gateway"),
        (names.engines("a" * 63, "prefill"), "a" * 46 + "-b7790cf2-prefill"),
        (names.engines("a" * 56, "decode"), "a" * 56 + "-decode"),
        (names.engines("a" * 57, "decode"), "a" * 47 + "-e58218b5-decode"),
    ],
)
def test_golden_names_never_change(name: str, golden: str) -> None:
    """A changed name would orphan the children of running services (kserve/kserve#1377)."""
    assert name == golden


@settings(deadline=None)
@given(owners, st.sampled_from(names.SUFFIXES))
def test_child_is_a_dns_label(owner: str, suffix: str) -> None:
    child = names.child(owner, suffix)
    assert LABEL.fullmatch(child)
    assert len(child) <= 63
    assert child.endswith(f"-{suffix}")


@settings(deadline=None)
@given(owners, owners, st.sampled_from(names.SUFFIXES))
def test_different_owners_have_different_children(one: str, other: str, suffix: str) -> None:
    assert (names.child(one, suffix) == names.child(other, suffix)) == (one == other)


def test_long_owners_that_begin_alike_differ() -> None:
    assert names.child("a" * 62 + "b", "decode") != names.child("a" * 62 + "c", "decode")


@settings(deadline=None)
@given(st.text(min_size=1, max_size=300))
def test_any_text_makes_a_label_value(text: str) -> None:
    value = names.label_value(text)
    assert LABEL_VALUE.fullmatch(value)
    assert len(value) <= 63


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("smollm2", "smollm2"),
        ("ibm-granite/granite-3b-code-instruct-accelerator", "ibm-granite-granite-3b"),
        ("a:b+c", "a-b-c-"),
    ],
)
def test_served_names_as_labels(text: str, begins: str) -> None:
    """A served name with a slash made an invalid label (opendatahub-io/odh-dashboard#3062)."""
    assert names.label_value(text).startswith(begins)


def test_changed_values_stay_distinct() -> None:
    assert names.label_value("a/b") != names.label_value("a:b")
    assert names.label_value("a-b") == "a-b"
