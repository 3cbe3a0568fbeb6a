"""One look at a service: what belongs to it is found, what is strange to it is left out."""

from __future__ import annotations

from memory_api import MemoryApi
from operator_bodies import KNOWN, SITE, merged, service, service_body
from steelyard.apply.scale import scale
from steelyard.build.render import children, revision
from steelyard.catalog.accelerators import ACCELERATORS
from steelyard.observe.snapshot import accelerator_names, observe


def world() -> MemoryApi:
    api = MemoryApi()
    api.put(service_body())
    api.put(ACCELERATORS["cpu"].manifest())
    rendered = children(service(), KNOWN, SITE)
    for child in [*rendered, revision(service(), rendered, "h", 10), revision(service(), rendered[:1], "g", 9)]:
        api.put(merged({"spec": {"replicas": 1}}, child) if child["kind"] == "Deployment" else child)
    return api


def test_it_finds_what_belongs_to_the_service() -> None:
    seen = observe(world(), "team-a", "chat")
    assert seen is not None
    assert {d.pool: d.replicas_written for d in seen.snapshot.deployments} == {
        "prefill": False,
        "decode": False,
        "": False,
    }
    assert [revision.number for revision in seen.snapshot.revisions] == [9, 10], "by number, not as text"
    assert seen.snapshot.current is not None
    assert seen.snapshot.current.spec_hash == "h"
    assert seen.snapshot.accelerators["cpu"] is not None
    assert len(seen.children) == len(children(service(), KNOWN, SITE))


def test_replicas_that_somebody_wrote_are_known_as_written() -> None:
    api = world()
    scale(api, "team-a", "chat-decode", 1)
    api.edit("Deployment", "chat-decode", {"spec": {"replicas": 3}}, manager="kubectl")
    seen = observe(api, "team-a", "chat")
    assert seen is not None
    decode = seen.snapshot.deployment_of("decode")
    assert decode is not None
    assert (decode.replicas, decode.replicas_written) == (3, True)


def test_gone_and_going_are_nothing_to_look_at() -> None:
    api = world()
    assert observe(api, "team-a", "other") is None
    api.edit("InferenceService", "chat", {"metadata": {"deletionTimestamp": "now"}})
    assert observe(api, "team-a", "chat") is None


def test_revisions_of_an_older_service_of_that_name_are_left_out() -> None:
    api = world()
    api.edit("InferenceService", "chat", {"metadata": {"uid": "uid-2"}})
    seen = observe(api, "team-a", "chat")
    assert seen is not None
    assert seen.snapshot.revisions == ()


def test_hardware_that_cannot_be_read_counts_as_absent() -> None:
    api = world()
    api.edit("Accelerator", "cpu", {"spec": {"fromTheFuture": True}})
    seen = observe(api, "team-a", "chat")
    assert seen is not None
    assert seen.snapshot.accelerators == {"cpu": None}


def test_the_hardware_that_a_spec_names() -> None:
    assert accelerator_names({}) == ["cpu"]
    assert accelerator_names({"accelerator": "h200", "decode": {"accelerator": "h100"}}) == ["h100", "h200"]
    assert accelerator_names({"prefill": None}) == ["cpu"]
