"""The promises of the documentation about the chart, checked on Helm's output."""

from __future__ import annotations

import base64
import json
import tomllib
from itertools import pairwise

import pytest
import yaml

from bundlekeel.recalibration.jobs.__main__ import REFUSED, USAGE
from dev.chart import CHART, ROOT, render
from tests.support.chart import (
    CASES,
    CLUSTER_KINDS,
    OPERATOR_KINDS,
    Object,
    Pod,
    broker_values,
    cases_with_values,
    kinds,
    of_kind,
    pods,
    rendered,
)

ALL_PODS = [pod for case in CASES for pod in pods(case)]
SIDECARS = cases_with_values()


def _spec(case: str, name: str) -> Object:
    """The pod template of the object of that name."""
    matches = [pod for pod in pods(case) if pod.owner.endswith(f" {name}")]
    assert len(matches) == 1
    return matches[0].spec


# --- hardened, whatever it is


@pytest.mark.parametrize("pod", ALL_PODS, ids=lambda pod: pod.owner)
def test_every_pod_is_confined(pod: Pod) -> None:
    """Pod Security `restricted`, and a read-only root file system beyond it."""
    assert pod.spec["securityContext"]["runAsNonRoot"] is True
    assert pod.spec["securityContext"]["runAsUser"] > 0
    assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.spec["enableServiceLinks"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(pod.spec)
    for container in pod.containers:
        _confined(container)


def _confined(container: Object) -> None:
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["privileged"] is False
    assert context["runAsNonRoot"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "memory" in container["resources"]["limits"]
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@pytest.mark.parametrize("pod", ALL_PODS, ids=lambda pod: pod.owner)
def test_mounts_and_volumes_fit(pod: Pod) -> None:
    """Each mount has its volume; only empty folders and the history are writable; no host path."""
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    for container in pod.containers:
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if not mount.get("readOnly"):
                assert {"emptyDir", "persistentVolumeClaim"} & set(volume), mount
    assert not any("hostPath" in volume for volume in volumes.values())


@pytest.mark.parametrize("pod", ALL_PODS, ids=lambda pod: pod.owner)
def test_a_folder_of_secrets_is_there_where_it_is_named(pod: Pod) -> None:
    """Settings are refused without it: `secret:...: cannot be read`."""
    for container in pod.containers:
        named = {item["value"] for item in container.get("env", []) if item["name"] == "BUNDLEKEEL_SECRETS_DIR"}
        assert named <= {mount["mountPath"] for mount in container["volumeMounts"]}
        # The recalibration does not speak to ZooKeeper.
        assert not (named and pod.owner.endswith("recalibrate"))


@pytest.mark.parametrize("pod", ALL_PODS, ids=lambda pod: pod.owner)
def test_a_token_of_kubernetes_only_where_it_is_used(pod: Pod) -> None:
    """Events and Spark's executors need the API server; nothing else may talk to it."""
    needed = pod.owner.startswith("spark-kubernetes") and not {"deadman", "handback", "uninstall", "test"} & set(
        pod.owner.split("-")
    )
    assert pod.spec["automountServiceAccountToken"] is needed


def test_rights_are_minimal() -> None:
    """No role at all by default; never a cluster's, never a wildcard, never secrets."""
    with_role = {case for case in CASES if "Role" in kinds(case)}
    assert with_role == {"spark-kubernetes"}
    for case in CASES:
        assert not {"ClusterRole", "ClusterRoleBinding", "Secret"} & set(kinds(case))
    roles = {item["metadata"]["name"]: item["rules"] for item in rendered("spark-kubernetes") if item["kind"] == "Role"}
    resources = {name: {item for rule in rules for item in rule["resources"]} for name, rules in roles.items()}
    assert resources == {"keel-bundlekeel": {"events"}, "keel-bundlekeel-recalibrate": {"pods", "configmaps"}}
    for rule in (rule for rules in roles.values() for rule in rules):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]


def test_secrets_are_mounted_from_names_in_the_apache_charts_shapes() -> None:
    """{release}-token-{subject} with TOKEN, {release}-ca-tls with ca.crt alone (its key signs certificates)."""
    volumes = {volume["name"]: volume for volume in _spec("jwt-tls", "keel-bundlekeel")["volumes"]}
    token = volumes["bundlekeel-token"]["secret"]
    assert (token["secretName"], token["items"]) == ("pulsar-token-admin", [{"key": "TOKEN", "path": "token"}])
    authority = volumes["bundlekeel-ca"]["secret"]
    assert (authority["secretName"], authority["items"]) == ("pulsar-ca-tls", [{"key": "ca.crt", "path": "ca.crt"}])
    assert volumes["bundlekeel-cert"]["secret"]["secretName"] == "pulsar-tls-toolset"
    assert volumes["bundlekeel-secrets"]["secret"]["items"] == [{"key": "password", "path": "store__sasl_password"}]


# --- the Deployment


def test_three_candidates_apart_from_each_other() -> None:
    """Spread, never all away at once, replaced one by one."""
    item = of_kind("default", "Deployment")
    spec = item["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    spread = spec["template"]["spec"]["topologySpreadConstraints"]
    assert [rule["topologyKey"] for rule in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    own = spec["selector"]["matchLabels"]
    assert all(rule["labelSelector"]["matchLabels"] == own for rule in spread)
    budget = of_kind("default", "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, own)
    assert own.items() <= spec["template"]["metadata"]["labels"].items()


def test_a_budget_can_say_how_many_must_be_there() -> None:
    """Instead of how many may be away."""
    more = "deployment.podDisruptionBudget.minAvailable=2"
    objects = render("keel", CHART / "ci" / "default-values.yaml", "--set", more)
    (budget,) = [item["spec"] for item in objects if item["kind"] == "PodDisruptionBudget"]
    assert budget["minAvailable"] == 2 and "maxUnavailable" not in budget


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_more_containers_run_beside_or_before_a_candidate(where: str) -> None:
    """They are added unchanged, after our containers."""
    value = f"extra{where[0].upper()}{where[1:]}"
    case, more = CHART / "ci" / "default-values.yaml", f'{value}=[{{"name":"proxy","image":"p:1"}}]'
    (spec,) = [o["spec"] for o in render("keel", case, "--set-json", more) if o["kind"] == "Deployment"]
    pod = spec["template"]["spec"]
    assert pod["containers"][0]["name"] == "bundlekeel"
    assert pod[where][-1] == {"name": "proxy", "image": "p:1"}


def test_what_the_cluster_reads_of_deployment_service_and_ingress() -> None:
    """Controllers read annotations, clouds the load balancer's class and ranges; some want their own type of path."""
    assert of_kind("customized", "Deployment")["metadata"]["annotations"] == {"reloader.example/auto": "true"}
    service = of_kind("customized", "Service")["spec"]
    assert service["loadBalancerClass"] == "internal.example/nlb"
    assert service["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    (rule,) = of_kind("customized", "Ingress")["spec"]["rules"]
    assert rule["http"]["paths"][0]["pathType"] == "ImplementationSpecific"
    # None of it unless it is asked for.
    assert "annotations" not in of_kind("default", "Deployment")["metadata"]
    assert not {"loadBalancerClass", "loadBalancerSourceRanges"} & of_kind("default", "Service")["spec"].keys()


def test_what_people_add_reaches_every_pod_of_ours() -> None:
    """Pull secrets, volumes with their mounts, and the security context, merged with the values that are not
    overridden.
    """
    all_pods = list(pods("customized"))
    assert len(all_pods) == 7
    for pod in all_pods:
        assert pod.spec["imagePullSecrets"] == [{"name": "mirror"}], pod.owner
        context = pod.spec["securityContext"]
        assert (context["runAsUser"], context["fsGroup"], context["runAsNonRoot"]) == (10001, 2000, True), pod.owner
        assert "company-ca" in [volume["name"] for volume in pod.spec["volumes"]], pod.owner
        for container in pod.containers:
            mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounted["company-ca"] == "/etc/company-ca", pod.owner
    broker = broker_values("customized")
    assert "company-ca" in [volume["name"] for volume in broker["extraVolumes"]]
    on_kubernetes = "recalibrate.spark.master=k8s://https://kubernetes.default.svc"
    objects = render("keel", CHART / "ci" / "customized-values.yaml", "--set", on_kubernetes)
    text = next(item for item in objects if item["metadata"]["name"].endswith("-executor"))["data"]["executor.yaml"]
    executor = yaml.safe_load(text)
    assert "company-ca" in [volume["name"] for volume in executor["spec"]["volumes"]]
    assert "company-ca" in [mount["name"] for mount in executor["spec"]["containers"][0]["volumeMounts"]]


def test_arguments_replicas_and_times_of_probes_are_free() -> None:
    """The request of a probe is fixed."""
    spec = of_kind("customized", "Deployment")["spec"]
    container = spec["template"]["spec"]["containers"][0]
    sidecar = broker_values("customized")["initContainers"][0]
    assert spec["replicas"] == 2
    for run in (container, sidecar):
        assert run["args"] == ["run", "-c", "/etc/bundlekeel/settings.yaml", "--force-mixed"]
        probe = run["livenessProbe"]
        assert (probe["initialDelaySeconds"], probe["failureThreshold"], probe["periodSeconds"]) == (60, 10, 10)
        assert probe["exec"]["command"][-1] == "/livez"
    assert container["readinessProbe"]["periodSeconds"] == 5


def test_chart_and_package_say_where_they_are_from() -> None:
    """The addresses, version, names and words agree, and the icon needs no server. A wheel with an unknown classifier
    is not built.
    """
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (chart["home"], chart["sources"]) == (project["urls"]["Homepage"], [project["urls"]["Source"]])
    assert chart["maintainers"] == [author | {"url": chart["sources"][0]} for author in project["authors"]]
    assert chart["keywords"] == project["keywords"]
    assert chart["annotations"]["artifacthub.io/license"] == project["license"]
    lowest = project["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {lowest}" in project["classifiers"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    icon = base64.b64decode(chart["icon"].removeprefix("data:image/svg+xml;base64,"))
    assert icon == (ROOT / "service/bundlekeel/api/static/icon.svg").read_bytes()


def test_selectors_tell_candidates_from_jobs() -> None:
    """The Service, the budget and the spread must not count a failsafe job."""
    own = of_kind("jwt-tls", "Service")["spec"]["selector"]
    for case in CASES:
        for pod in pods(case):
            candidate = "Deployment" in pod.owner
            assert (own.items() <= pod.metadata["labels"].items()) is candidate, pod.owner


def test_h07_probes_of_candidates() -> None:
    """/livez does not depend on ZooKeeper; /readyz decides whether a candidate gets requests. Probes use the unix
    socket, which outside clients cannot fill.
    """
    for case in ("default", "jwt-tls"):
        container = _spec(case, "keel-bundlekeel")["containers"][0]
        for name, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            command = container[name]["exec"]["command"]
            assert command == ["python", "/opt/bundlekeel/healthcheck.py", path]
            assert container[name]["timeoutSeconds"] >= 5


def test_pods_say_where_the_others_reach_them() -> None:
    """Pods use the pod's address; pods next to brokers use the name in the brokers' certificates."""
    expected = {"default": "http://$(POD_IP):8090", "jwt-tls": "https://$(POD_NAME).pulsar-broker.pulsar.svc:8090"}
    for case, url in expected.items():
        env = _spec(case, "keel-bundlekeel")["containers"][0]["env"]
        names = [item["name"] for item in env]
        assert next(item["value"] for item in env if item["name"] == "BUNDLEKEEL__API__ADVERTISED_URL") == url
        # Kubernetes fills in only earlier variables.
        assert names.index("POD_NAME") < names.index("BUNDLEKEEL__API__ADVERTISED_URL") > names.index("POD_IP")


# --- beside the brokers


def test_where_there_is_a_sidecar() -> None:
    """In the cases that set `sidecar.join` to values."""
    assert SIDECARS == ["apache-sidecar", "customized", "jwt-tls"]


@pytest.mark.parametrize("case", SIDECARS)
def test_the_sidecar_never_holds_the_broker_back(case: str) -> None:
    """A native sidecar without readiness and startup probe: neither may decide whether the broker runs or serves."""
    (container,) = broker_values(case)["initContainers"]
    assert container["restartPolicy"] == "Always"
    assert not {"readinessProbe", "startupProbe", "lifecycle"} & set(container)
    assert set(container["livenessProbe"]) & {"httpGet", "exec"}
    _confined(container)


@pytest.mark.parametrize("case", SIDECARS)
def test_the_sidecar_shares_only_its_socket_with_the_broker(case: str) -> None:
    """Same user as the broker, so that its hook may use the socket; its tokens are not in the broker's container."""
    values = broker_values(case)
    (container,) = values["initContainers"]
    assert container["securityContext"]["runAsUser"] == 10000
    volumes = {volume["name"] for volume in values["extraVolumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    shared = {mount["name"] for mount in values["extraVolumeMounts"]}
    assert shared - {"bundlekeel-hook", "bundlekeel-hook-auth"} == {"bundlekeel-run"}


@pytest.mark.parametrize("case", CASES)
def test_config_maps_that_broker_pods_mount_outlive_the_release(case: str) -> None:
    """Else no broker pod starts again after an uninstall; what only our own pods mount goes with them."""
    ours = {o["metadata"]["name"]: o["metadata"] for o in rendered(case) if o["kind"] == "ConfigMap"}
    retained = {name for name, about in ours.items() if "helm.sh/resource-policy" in about.get("annotations", {})}
    volumes = broker_values(case)["extraVolumes"] if case in SIDECARS else []
    volumes += [v for o in rendered(case) if o["kind"] == "PodTemplate" for v in o["template"]["spec"]["volumes"]]
    assert retained == ours.keys() & {volume["configMap"]["name"] for volume in volumes if "configMap" in volume}


@pytest.mark.parametrize("case", SIDECARS)
def test_the_drain_is_the_broker_containers_preStop(case: str) -> None:
    """A sidecar is stopped after the broker: a hook of its own would come too late."""
    data = of_kind(case, "ConfigMap", "keel-bundlekeel-sidecar")["data"]
    (patch,) = yaml.safe_load(data["kustomization.yaml"])["patches"]
    assert patch["target"] == {"kind": "StatefulSet", "labelSelector": "component=broker"}
    (change,) = yaml.safe_load(patch["patch"])
    assert (change["op"], change["path"]) == ("add", "/spec/template/spec/containers/0/lifecycle")
    command = change["value"]["preStop"]["exec"]["command"]
    assert command[-1].endswith("python3 /opt/bundlekeel-hook/broker_hook.py drain")
    assert "BUNDLEKEEL_WITHIN=600 " in command[-1]
    # What a preStop hook prints is in no log; at the start it is in that of the container already.
    assert "BUNDLEKEEL_LOG=" in command[-1] and "BUNDLEKEEL_LOG=" not in broker_values(case)["additionalCommand"]
    values = broker_values(case)
    assert values["gracePeriod"] > 600
    assert values["additionalCommand"].endswith("broker_hook.py back &")
    assert data["broker_hook.py"].strip() == (CHART / "files" / "broker_hook.py").read_text(encoding="utf-8").strip()


def test_the_service_finds_sidecars_by_number() -> None:
    """Services do not know the port names of init containers."""
    spec = of_kind("apache-sidecar", "Service")["spec"]
    assert spec["selector"] == {"app": "pulsar", "component": "broker"}
    assert spec["ports"][0]["targetPort"] == 8090


def test_an_upgrade_of_pulsars_release_keeps_its_chart() -> None:
    """Without a version Helm takes the newest chart of the repository, and Pulsar itself is upgraded."""
    texts = [CHART / "templates" / "NOTES.txt", *(ROOT / "docs").rglob("*.md")]
    lines = [line for path in texts for line in path.read_text(encoding="utf-8").splitlines()]
    commands = [line for line in lines if "upgrade pulsar apache/pulsar" in line]
    assert len(commands) == 3
    assert all(" --version VERSION " in line for line in commands), commands


# --- jobs


def test_deadman() -> None:
    """One at a time, once, and a failure is a failure: it is worth an alert."""
    spec = of_kind("deadman-only", "CronJob", "keel-bundlekeel-deadman")["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("* * * * *", "Forbid")
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    args = pod["containers"][0]["args"]
    assert args[:5] == ["deadman", "--after", "5m", "--confirm", "60s"]
    assert "podAntiAffinity" in pod["affinity"]
    assert not {"Deployment", "Service", "PodDisruptionBudget"} & set(kinds("deadman-only"))


def test_deadman_is_there_unless_it_is_turned_off() -> None:
    """Whoever lets it act has the way back as well."""
    assert of_kind("default", "CronJob", "keel-bundlekeel-deadman")
    assert "CronJob" not in kinds("recommend")


def test_recommend_asks_a_running_candidate() -> None:
    """A dry run at the Service, with the token that may only read."""
    args = of_kind("jwt-tls", "Job", "keel-bundlekeel-recommend-1")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[0] == "plan"
    assert args[args.index("--url") + 1] == "https://keel-bundlekeel.pulsar.svc:8090"
    assert args[args.index("--token-file") + 1] == "/run/secrets/bundlekeel/auth/peer"


def test_recommend_alone_brings_its_own_sidecar() -> None:
    """It may change nothing, whatever the settings are, and ends with the Job. It needs a startup probe."""
    pod = of_kind("recommend", "Job")["spec"]["template"]["spec"]
    (own,) = pod["initContainers"]
    assert own["restartPolicy"] == "Always"
    assert own["args"][-2:] == ["--mode", "recommend"]
    assert own["startupProbe"]["exec"]["command"][-1] == "/readyz"
    assert pod["containers"][0]["args"] == [
        "plan",
        "-o",
        "json",
        "--ignore-hit-counts",
        "--socket",
        "/run/bundlekeel/bundlekeel.sock",
    ]
    assert kinds("recommend") == ["ConfigMap", "Job", "ServiceAccount"]


def test_recalibration_is_nightly_and_alone() -> None:
    """Two at once would write the same evidence; one that hangs ends before the next night. Its days end at midnight
    UTC, whatever the zone of the controllers."""
    for case in ("history-recalibrate", "spark-kubernetes"):
        spec = of_kind(case, "CronJob", "keel-bundlekeel-recalibrate")["spec"]
        minute, hour, *days = spec["schedule"].split()
        assert minute.isdecimal() and hour.isdecimal() and days == ["*", "*", "*"]
        assert spec["timeZone"] == "Etc/UTC"
        assert spec["concurrencyPolicy"] == "Forbid"
        job = spec["jobTemplate"]["spec"]
        assert 0 < job["activeDeadlineSeconds"] < 86_400
        assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert "keel-bundlekeel-recalibrate" not in {item["metadata"]["name"] for item in rendered("default")}


def test_recalibration_in_its_own_pod() -> None:
    """The history's claim is where the sidecars write it."""
    pod = _spec("history-recalibrate", "keel-bundlekeel-recalibrate")
    args = pod["containers"][0]["args"]
    assert args[:10] == [
        "recalibrate",
        "--history",
        "/history",
        "--out",
        "/history/calibration",
        "--settings",
        "/etc/bundlekeel/settings.yaml",
        "--await-history",
        "--master",
        "local[2]",
    ]
    assert args[-2:] == ["--days", "14"]
    for spec in (pod, _spec("history-recalibrate", "keel-bundlekeel")):
        claims = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v]
        assert claims == ["bundlekeel-history"]


def test_the_journal_outlives_its_pod() -> None:
    """On the claim, each pod under its own name, in the Deployment and beside brokers; no job waits for it."""
    beside = broker_values("customized")
    (sidecar,) = beside["initContainers"]
    deployment = _spec("customized", "keel-bundlekeel")
    for container, volumes in ((deployment["containers"][0], deployment["volumes"]), (sidecar, beside["extraVolumes"])):
        names = [item["name"] for item in container["env"]]
        paths = {item["name"]: item.get("value") for item in container["env"]}
        assert paths["BUNDLEKEEL__JOURNAL__PATH"] == "/journal/$(POD_NAME).jsonl"
        # Kubernetes fills in only variables above this one.
        assert names.index("POD_NAME") < names.index("BUNDLEKEEL__JOURNAL__PATH")
        assert {"name": "bundlekeel-journal", "mountPath": "/journal"} in container["volumeMounts"]
        claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v}
        assert claims == {"bundlekeel-journal": "bundlekeel-journal"}
    jobs = [pod for pod in pods("customized") if "Deployment" not in pod.owner]
    assert len(jobs) >= 4
    assert not any("journal" in json.dumps(pod.spec) for pod in jobs)


def test_recalibration_is_tried_again_only_where_that_may_help() -> None:
    """Not what the command refuses (exit codes 1 and 2); a store that does not answer, or memory, may be there then."""
    job = of_kind("history-recalibrate", "CronJob", "keel-bundlekeel-recalibrate")["spec"]["jobTemplate"]["spec"]
    (rule,) = job["podFailurePolicy"]["rules"]
    (container,) = job["template"]["spec"]["containers"]
    assert (rule["action"], job["backoffLimit"]) == ("FailJob", 1)
    assert rule["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [REFUSED, USAGE]}


def test_recalibration_with_executors_in_pods() -> None:
    """Executors of the same image, as confined as the rest, gone with the driver."""
    args = _spec("spark-kubernetes", "keel-bundlekeel-recalibrate")["containers"][0]["args"]
    conf = dict(item.split("=", 1) for before, item in pairwise(args) if before == "--conf")
    assert conf["spark.kubernetes.container.image"] == "bundlekeel-spark:0.1.0"
    assert conf["spark.kubernetes.namespace"] == "pulsar"
    assert conf["spark.executor.instances"] == "3"
    assert conf["spark.sql.shuffle.partitions"] == "24"
    assert conf["spark.kubernetes.driver.pod.name"] == "$(POD_NAME)"
    executor = yaml.safe_load(
        of_kind("spark-kubernetes", "ConfigMap", "keel-bundlekeel-executor")["data"]["executor.yaml"]
    )
    context = executor["spec"]["containers"][0]["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert executor["spec"]["securityContext"]["runAsNonRoot"] is True


# --- network and monitoring


def test_network_policy_lets_through_what_is_needed_and_nothing_else() -> None:
    """ZooKeeper, brokers, each other, DNS; in: who is named."""
    spec = of_kind("networkpolicy", "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    (door,) = spec["ingress"]
    assert [port["port"] for port in door["ports"]] == [8090]
    assert {"podSelector": {}} not in door["from"]
    named = [item["namespaceSelector"]["matchLabels"] for item in door["from"] if "namespaceSelector" in item]
    assert [next(iter(labels.values())) for labels in named] == ["operators", "monitoring"]
    ports = {port["port"] for rule in spec["egress"] for port in rule["ports"]}
    assert ports == {53, 2181, 2281, 8080, 8443, 6650, 6651, 8090, 443}
    assert all(rule["ports"] for rule in spec["egress"])
    spark = {
        port["port"]
        for rule in of_kind("spark-kubernetes", "NetworkPolicy")["spec"]["egress"]
        for port in rule["ports"]
    }
    assert spark >= {443, 6443, 7078, 7079}


def test_the_network_policy_names_whom_it_lets_out_to() -> None:
    """By default the policy restricts only ports, since the addresses of ZooKeeper and brokers are not in the
    values.
    """
    own = {"podSelector": {"matchLabels": {"component": "zookeeper"}}}
    arguments = ["--set-json", f"networkPolicy.zookeeperTo=[{json.dumps(own)}]", "--set", "networkPolicy.enabled=true"]
    objects = render("keel", CHART / "ci" / "default-values.yaml", *arguments)
    (policy,) = [item for item in objects if item["kind"] == "NetworkPolicy"]
    rules = {tuple(port["port"] for port in rule["ports"]): rule.get("to") for rule in policy["spec"]["egress"]}
    assert rules[(2181, 2281)] == [own]
    assert rules[(53, 53)] is rules[(8080, 8443, 6650, 6651)] is None


def test_helm_test_asks_doctor() -> None:
    """It runs in a pod like the others, for releases with sidecars."""
    pod = of_kind("apache-sidecar", "Pod", "keel-bundlekeel-test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["containers"][0]["args"] == ["doctor"]
    assert pod["spec"]["activeDeadlineSeconds"] < 300
    assert "Pod" not in kinds("deadman-only")


def test_service_monitor_over_tls() -> None:
    """Prometheus scrapes pods by address, so the certificate's name is set."""
    spec = of_kind("prometheus-operator", "ServiceMonitor")
    assert spec["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    (endpoint,) = spec["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["scheme"]) == ("bundlekeel", "/metrics", "https")
    assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": "bundlekeel-tls", "key": "ca.crt"}
    assert endpoint["tlsConfig"]["serverName"] == "keel-bundlekeel.pulsar.svc"
    service = of_kind("prometheus-operator", "Service")
    assert spec["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


def test_pod_monitor_of_broker_pods() -> None:
    """The port is ours, by name, in pods that are the Apache chart's."""
    spec = of_kind("apache-sidecar", "PodMonitor")["spec"]
    assert spec["selector"]["matchLabels"] == {"app": "pulsar", "component": "broker"}
    (endpoint,) = spec["podMetricsEndpoints"]
    (container,) = broker_values("apache-sidecar")["initContainers"]
    assert endpoint["port"] == container["ports"][0]["name"] == "bundlekeel"


def test_rules_and_dashboards_are_those_of_the_repository() -> None:
    """Nothing of theirs is taken for a template by Helm."""
    for name in ("alerts", "recording"):
        rule = of_kind("prometheus-operator", "PrometheusRule", f"keel-bundlekeel-{name}")
        rules = yaml.safe_load((CHART.parent.parent / "prometheus" / f"{name}.yml").read_text(encoding="utf-8"))
        assert rule["spec"] == rules
        assert rule["spec"]["groups"]
    for path in (CHART.parent.parent / "dashboards").glob("*.json"):
        name = path.stem.removeprefix("bundlekeel-")
        dashboards = of_kind("prometheus-operator", "ConfigMap", f"keel-bundlekeel-dashboard-{name}")
        assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((file, text),) = dashboards["data"].items()
        assert (file, text.strip()) == (path.name, path.read_text(encoding="utf-8").strip())


def test_runbooks_can_be_followed_from_an_alert() -> None:
    """With addresses each alert has its own links. An invalid address, or an unknown alert, is refused."""
    values, key = CHART / "ci" / "prometheus-operator-values.yaml", "monitoring.prometheusRule.runbookUrl"
    grafana = "monitoring.prometheusRule.grafanaUrl=https://grafana.example.com/"
    address = f"{key}=https://docs.example.com/runbooks/{{alert}}.html"
    objects = render("keel", values, "--set", address, "--set", grafana)
    rules = [
        item for item in objects if item["kind"] == "PrometheusRule" and item["metadata"]["name"].endswith("alerts")
    ]
    alerts = [rule for group in rules[0]["spec"]["groups"] for rule in group["rules"]]
    assert alerts
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"https://docs.example.com/runbooks/{rule['alert']}.html"
        assert rule["annotations"]["dashboard_url"].startswith("https://grafana.example.com/d/bundlekeel-")
    for wrong in ("docs.example.com/{alert}", "https://docs.example.com/", "https://a b/{alert}"):
        with pytest.raises(RuntimeError, match="runbookUrl"):
            render("keel", values, "--set", f"{key}={wrong}")


@pytest.mark.parametrize("case", CASES)
def test_names_and_labels(case: str) -> None:
    """Every object has the labels of the release, is in its namespace unless its kind has none, and is unique."""
    keys = [(item["kind"], item["metadata"]["name"]) for item in rendered(case)]
    assert len(keys) == len(set(keys))
    for item in rendered(case):
        assert item["metadata"].get("namespace") == (None if item["kind"] in CLUSTER_KINDS else "pulsar")
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "keel"
        if item["kind"] in OPERATOR_KINDS:
            assert item["apiVersion"] == "monitoring.coreos.com/v1"
