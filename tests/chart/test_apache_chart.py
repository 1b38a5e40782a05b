"""Our values in the Apache Pulsar chart itself: BUNDLEKEEL_APACHE_CHART names the folder `charts/pulsar` of a checkout.

Without it these are skipped: the chart is not ours to keep a copy of. `tests.support.chart.apache_statefulset` stands
for it in the other tests; here it is held against what it stands for.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from dev.chart import render
from tests.support.chart import Object, apache_statefulset, broker_values, of_kind

APACHE = os.environ.get("BUNDLEKEEL_APACHE_CHART", "")
CASES = ("apache-sidecar", "jwt-tls")
pytestmark = pytest.mark.skipif(not APACHE, reason="BUNDLEKEEL_APACHE_CHART does not name the Apache Pulsar chart")


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy without the charts it depends on, none of which makes a broker."""
    folder = tmp_path_factory.mktemp("apache") / "pulsar"
    shutil.copytree(APACHE, folder)
    about = yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
    assert about.pop("name") == "pulsar"
    about.pop("dependencies")
    (folder / "Chart.yaml").write_text(yaml.safe_dump({"name": "pulsar", **about}), encoding="utf-8")
    return folder


def brokers_of(chart: Path, folder: Path, values: Object) -> Object:
    """The StatefulSet of the brokers, release `pulsar`."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    (stateful_set,) = render("pulsar", file, "--show-only", "templates/broker-statefulset.yaml", chart=chart)
    return stateful_set


@pytest.mark.parametrize("case", CASES)
def test_the_container_comes_out_as_it_went_in(chart: Path, tmp_path: Path, case: str) -> None:
    """Last of the init containers, with its volumes; the broker's container gets the mounts and the command."""
    ours = broker_values(case)
    plain, merged = (brokers_of(chart, tmp_path, {"broker": values}) for values in ({}, ours))
    pod, before = merged["spec"]["template"]["spec"], plain["spec"]["template"]["spec"]
    assert pod["initContainers"] == [*before["initContainers"], *ours["initContainers"]]
    assert pod["volumes"] == [*(before["volumes"] or []), *ours["extraVolumes"]]
    assert pod["terminationGracePeriodSeconds"] == ours["gracePeriod"]
    (broker,), (bare,) = pod["containers"], before["containers"]
    assert all(mount in broker["volumeMounts"] for mount in ours["extraVolumeMounts"])
    (script,), (others,) = broker["args"], bare["args"]
    assert script.replace(ours["additionalCommand"] + "\n", "", 1) == others
    assert script.index(ours["additionalCommand"]) < script.index("bin/pulsar broker")


@pytest.mark.parametrize("case", CASES)
def test_what_stands_for_the_chart_is_like_it(chart: Path, tmp_path: Path, case: str) -> None:
    """The model has every part of the chart that our values, our patch, Service and monitor use."""
    ours = broker_values(case)
    actual, model = brokers_of(chart, tmp_path, {"broker": ours}), apache_statefulset(ours)
    real, stands = actual["spec"]["template"], model["spec"]["template"]
    assert stands["metadata"]["labels"].items() <= real["metadata"]["labels"].items()
    assert actual["metadata"]["labels"]["component"] == model["metadata"]["labels"]["component"]
    assert real["spec"]["initContainers"][-1] == stands["spec"]["initContainers"][-1]
    assert real["spec"]["containers"][0]["name"] == stands["spec"]["containers"][0]["name"]
    # The patch adds it; the chart must have none of its own.
    assert "lifecycle" not in real["spec"]["containers"][0]
    selector = of_kind("apache-sidecar", "Service")["spec"]["selector"]
    assert selector.items() <= real["metadata"]["labels"].items()


def test_secrets_have_the_shapes_that_we_mount(chart: Path, tmp_path: Path) -> None:
    """Names and keys of the broker's own token and certificates."""
    secured = {
        "auth": {"authentication": {"enabled": True, "jwt": {"enabled": True}}, "authorization": {"enabled": True}},
        "tls": {"enabled": True, "broker": {"enabled": True}},
        "certs": {"internal_issuer": {"enabled": True, "type": "selfsigning"}},
    }
    volumes = brokers_of(chart, tmp_path, secured)["spec"]["template"]["spec"]["volumes"]
    secrets = {item["secret"]["secretName"]: item["secret"]["items"] for item in volumes if "secret" in item}
    token = secrets["pulsar-token-broker-admin"]
    assert [item["key"] for item in token] == ["TOKEN"]
    assert "ca.crt" in {item["key"] for item in secrets["pulsar-ca-tls"]}
    assert {"tls.crt", "tls.key"} <= {item["key"] for item in secrets["pulsar-tls-broker"]}
