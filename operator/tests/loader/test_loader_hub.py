"""The loader at the hub: who is shown the token, and what a listing may say."""

from __future__ import annotations

import io
import urllib.request
from http.client import HTTPMessage
from pathlib import Path

import pytest
from loader_world import REPOSITORY, repositories, store
from steelyard.loader.errors import LoaderError, Refused
from steelyard.loader.hub import Hub, Redirects, inside

from e2e.hub import Repositories, serving


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repositories:
    return repositories(tmp_path, monkeypatch)


def test_the_token_goes_to_the_hub_and_not_to_the_store_behind_it(served: Repositories, tmp_path: Path) -> None:
    behind = Repositories(served.folder)
    served.token = "hub-token"
    with serving(behind) as files, serving(served) as url:
        served.store = files
        store(tmp_path).fill(Hub(url, "hub-token"), REPOSITORY, "main", ("model.safetensors",))
        with pytest.raises(Refused, match=r"the hub says 401; name a token in spec\.model\.credentials"):
            Hub(url).listing(REPOSITORY, "main")
    assert served.tokens == ["Bearer hub-token"]
    assert behind.tokens == [""]


def test_the_token_follows_to_another_path_of_the_hub(served: Repositories, tmp_path: Path) -> None:
    served.token, served.demands, served.moves = "hub-token", True, True
    with serving(served) as url:
        store(tmp_path).fill(Hub(url, "hub-token"), REPOSITORY, "main", ("config.json",))
    assert served.tokens == ["Bearer hub-token"] * 2


def test_the_token_follows_within_the_hub_and_is_dropped_behind_it(served: Repositories, tmp_path: Path) -> None:
    """Another port of the same address is somebody else's."""
    behind = Repositories(served.folder)
    served.token, served.demands, served.moves = "hub-token", True, True
    with serving(behind) as files, serving(served) as url:
        served.store = files
        store(tmp_path).fill(Hub(url, "hub-token"), REPOSITORY, "main", ("model.safetensors",))
    assert served.tokens == ["Bearer hub-token"] * 2
    assert behind.tokens == [""]


@pytest.mark.parametrize(
    ("to", "shown"),
    [
        ("https://hub.example/api/resolve-cache/a", True),
        ("https://HUB.example:443/a", True),
        ("https://hub.example:8443/a", False),
        ("http://hub.example/a", False),
        ("http://hub.example:443/a", False),
        ("https://cdn.hub.example/a", False),
        ("https://hub.example.evil.example/a", False),
        ("https://hub.example@evil.example/a", False),
        ("https://hub.example:port/a", False),
    ],
)
def test_who_is_the_same_server(to: str, shown: bool) -> None:
    request = urllib.request.Request("https://hub.example/org/model/resolve/main/a", headers={"Range": "bytes=5-"})
    request.add_unredirected_header("Authorization", "Bearer hub-token")
    follows = Redirects().redirect_request(request, io.BytesIO(), 307, "", HTTPMessage(), to)
    assert follows is not None
    assert follows.has_header("Authorization") is shown
    assert follows.get_header("Range") == "bytes=5-"


def test_a_repository_that_is_not_there_is_refused_at_once(served: Repositories) -> None:
    with serving(served) as url, pytest.raises(Refused, match="org/other@main: the hub knows no such"):
        Hub(url).listing("org/other", "main")


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../b", "a\\b", "", "nul\0"])
def test_names_that_lead_outside_are_refused(path: str) -> None:
    with pytest.raises(Refused, match="would lead outside its folder"):
        inside(path)


def test_a_listing_that_is_nonsense_is_told(served: Repositories, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Repositories, "listing", lambda self, repository: {"sha": "main", "siblings": [{"rfilename": "a"}]}
    )
    with serving(served) as url, pytest.raises(LoaderError, match="cannot be read"):
        Hub(url).listing(REPOSITORY, "main")
