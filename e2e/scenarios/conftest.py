"""One real cluster with Steelyard on it for all scenarios, and small services to try things on.

`STEELYARD_TEST_CLUSTER=NAME` reuses a cluster that is up and leaves it up; otherwise the cluster `test` is made and taken down.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Generator, Iterator

import pytest
from rich.console import Console

from e2e.cluster import Cluster, ClusterError, remove
from e2e.cluster import build as programs
from e2e.cluster.programs import PROMTOOL
from e2e.images.build import build_archives
from e2e.monitoring import image as prometheus
from e2e.platform import EXAMPLES, Platform, Served, bring_up, prepare
from e2e.vllm import models


def _say(text: str) -> None:
    print(f"[platform] {text}", file=sys.__stderr__, flush=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing before the first test's clock runs: half an hour from nothing, seconds from the cache."""
    marks = {mark for mark in ("cluster", "vllm") for item in session.items if item.get_closest_marker(mark)}
    if session.config.getoption("collectonly") or not marks:
        return
    console = Console(file=sys.__stderr__)
    try:
        prepare("auto", _say, console)
    except ClusterError:
        return  # the fixture `platform` says why
    if "vllm" in marks:
        build_archives(("vllm", "quantize"), say=_say)
        models.folder(_say)
    if "cluster" not in marks:
        return
    prometheus.archive(console)
    programs.ensure(console, [PROMTOOL])


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    """The platform, made once."""
    kept = os.environ.get("STEELYARD_TEST_CLUSTER")
    name = kept or "test"
    console = Console(file=sys.__stderr__)
    try:
        yield bring_up(name, "auto", _say, console)
    except ClusterError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"END-TO-END SKIPPED, no cluster can run here: {error}")
    finally:
        if not kept:
            remove(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed scenario tells what the cluster looked like then: nobody can look afterwards."""
    report = yield
    platform = getattr(item, "funcargs", {}).get("platform")
    if report.failed and isinstance(platform, Platform):
        report.sections.append(("the cluster at the failure", platform.picture()))
    return report


@pytest.fixture(scope="session")
def cluster(platform: Platform) -> Cluster:
    """The cluster under the platform."""
    return platform.cluster


@pytest.fixture
def namespace(platform: Platform, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, gone afterwards."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:48].strip("-")
    name = f"{words}-{secrets.token_hex(3)}"
    platform.make_namespace(name)
    yield name
    platform.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def disaggregated(platform: Platform) -> Iterator[Served]:
    """SmolLM2 by a prefill and a decode pod."""
    yield from _serve(platform, "smollm2")


@pytest.fixture(scope="session")
def whole(platform: Platform) -> Iterator[Served]:
    """SmolLM2 by one pod that does both."""
    yield from _serve(platform, "smollm2-whole")


def _serve(platform: Platform, name: str) -> Iterator[Served]:
    platform.apply(EXAMPLES / f"{name}.yaml", "serving")
    platform.wait_available(name, "serving")
    with platform.forward(f"svc/{name}", 8000, "serving") as url:
        yield Served("serving", name, url)
    platform.kubectl("delete", "inferenceservice", name, "-n", "serving", "--ignore-not-found")
