"""Addresses that are shown hold no credentials: refused by name wherever one is taken, and never repeated."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.uris import credentials_fault, place_fault
from bundlekeel.settings.load import load_settings
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring

WITH_SECRETS = [
    "s3://AKIA:canary-1@bucket/keel",
    "s3://AKIA:canary/1@bucket",
    "s3://canary-1@bucket",
    "S3A://AKIA:canary-1@bucket",
    "s3://AKIA%3Acanary-1@bucket",
    "hdfs://keel:canary-1@namenode:8020/x",
    "abfss://:canary-1@account.dfs.core.windows.net/x",
    "https://canary-1@host/x",
    "s3://bucket/x?secret_key=canary-1",
    "s3://bucket/x?region=eu&session_token=canary-1",
    "abfss://c@account.dfs.core.windows.net/x?sig=canary-1",
    "https://host/x?X-Amz-Signature=canary-1",
    "s3://bucket/x?endpoint_override=http://a:canary-1@minio:9000",
]
WITHOUT = [
    "/var/keel",
    "keel@night",
    "file:///var/keel",
    "s3://bucket/keel",
    "s3://bucket/a:b@c",
    "s3://bucket/keel?region=eu&endpoint_override=http://minio:9000&scheme=http",
    "gs://anonymous@bucket/keel",
    "hdfs://keel@namenode:8020/keel",
    "hdfs://namenode:8020/a@b",
    "abfss://container@account.dfs.core.windows.net/keel",
    "http://[::1]:4318/v1/traces",
    "pulsar+ssl://a:6651,b:6651",
    "https://collector:4318/v1/traces",
]


@pytest.mark.parametrize("text", WITH_SECRETS)
def test_h09_credentials_are_found(text: str) -> None:
    assert credentials_fault(text) and place_fault(text)
    assert "canary" not in credentials_fault(text)


@pytest.mark.parametrize("text", WITHOUT)
def test_h09_addresses_without_credentials_are_taken(text: str) -> None:
    """Names of containers, users and ports are none."""
    assert credentials_fault(text) == place_fault(text) == ""


SETTINGS: list[dict[str, Any]] = [
    {"traces": {"otlp_endpoint": "http://keel:canary-1@collector:4318"}},
    {"api": {"advertised_url": "http://keel:canary-1@host:8090"}},
    {"extensible": {"service_url": "pulsar://keel:canary-1@broker:6650"}},
    {"metadata_store": "zk:keel:canary-1@host:2181"},
    {"configuration_store": "zk:keel:canary-1@host:2181"},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_h09_settings_refuse_them_by_the_fields_name(options: dict[str, Any]) -> None:
    """And neither message nor value repeats them."""
    with pytest.raises(ConfigError) as error:
        load_settings(None, options, environ={})
    section, inner = next(iter(options.items()))
    assert error.value.field == (f"{section}.{next(iter(inner))}" if isinstance(inner, dict) else section)
    assert "credentials" in str(error.value)
    assert "canary" not in f"{error.value} {error.value.value}" and "AKIA" not in f"{error.value} {error.value.value}"


def test_h09_the_command_line_refuses_them() -> None:
    """The address of a sidecar."""
    ran = CliRunner().invoke(make_app(FakeWiring), ["brokers", "--url", "http://keel:canary-1@host:8090"])
    assert ran.exit_code == 2 and "--url" in ran.output and "canary" not in ran.output
