"""The settings file: what is read, and how a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from steelyard.run.settings import SettingsError, load


def test_a_full_file(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text(
        "images: {gateway: 'g:1', engine: 'e:1'}\nimagePullPolicy: Never\n"
        "imagePullSecrets: [{name: regcred}]\nwatchNamespaces: [team-a]\n"
        "prometheusNamespace: monitoring\nleaseName: mine\n"
    )
    settings = load(file)
    site = settings.site("system")
    assert settings.watch_namespaces == ("team-a",)
    assert settings.lease_name == "mine"
    assert (site.gateway_image, site.engine_image, site.image_pull_policy) == ("g:1", "e:1", "Never")
    assert site.image_pull_secrets == ("regcred",)
    assert (site.prometheus_namespace, site.operator_namespace) == ("monitoring", "system")


def test_prometheus_is_named_with_its_files_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    images = "images: {gateway: g, engine: e}\n"
    file.write_text(images)
    assert load(file).prometheus is None
    file.write_text(
        images + "prometheus: {url: 'https://prometheus:9090/sub', bearerTokenFile: /a/token, caFile: /a/ca}"
    )
    found = load(file).prometheus
    assert found is not None
    assert (found.url, found.bearer_token_file, found.ca_file) == (
        "https://prometheus:9090/sub", Path("/a/token"), Path("/a/ca"),
    )  # fmt: skip


def test_prometheus_may_ask_for_a_name_and_a_password(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text(
        "images: {gateway: g, engine: e}\nprometheus: {url: 'http://prometheus', username: us, passwordFile: /a/password}"
    )
    found = load(file).prometheus
    assert found is not None
    assert (found.username, found.password_file) == ("us", Path("/a/password"))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("images: {gateway: g}", "images.engine: Field required"),
        ("images: {gateway: g, engine: e}\nleaseNme: x", "leaseNme: Extra inputs are not permitted"),
        ("images: {gateway: g, engine: e}\nworkers: 0", "workers: Input should be greater than or equal to 1"),
        ("images: {gateway: g, engine: e}\nprometheus: {url: prometheus:9090}", "prometheus.url: String should match"),
        ("images: {gateway: g, engine: e}\nprometheus: {}", "prometheus.url: Field required"),
        (
            "images: {gateway: g, engine: e}\nprometheus: {url: 'http://p', username: us}",
            "prometheus: Value error, username and passwordFile go together",
        ),
        (
            "images: {gateway: g, engine: e}\nprometheus: {url: 'http://p', username: us, passwordFile: /p, bearerTokenFile: /t}",
            "prometheus: Value error, bearerTokenFile and passwordFile are two ways in: give one",
        ),
        ("images: {gateway: g, engine: e}\ntickSeconds: 0", "tickSeconds: Input should be greater than or equal to 1"),
        ("images: {gateway: g", "is not YAML"),
        ("", "file: "),
    ],
)
def test_a_wrong_file_is_named_with_its_field(tmp_path: Path, content: str, named: str) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text(content)
    with pytest.raises(SettingsError) as failure:
        load(file)
    assert str(file) in str(failure.value)
    assert named in str(failure.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path / "none.yaml")
