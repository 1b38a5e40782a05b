"""The settings tree: sources and their precedence, origins, every refusal with key, value and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import BY_NAME, Parameters
from bundlekeel.model.text_format import format_duration, parse_duration
from bundlekeel.settings.describe import shared_digest
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from bundlekeel.settings.problems import ConfigErrors
from bundlekeel.settings.schema import rows


def load(tmp_path: Path, text: str = "", overrides: dict[str, Any] | None = None, /, **environ: str) -> LoadedSettings:
    """Settings out of a file with this text, these overrides and this environment only."""
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, overrides or {}, environ=environ)


def problems(tmp_path: Path, text: str = "", **environ: str) -> list[ConfigError]:
    with pytest.raises(ConfigErrors) as caught:
        load(tmp_path, text, None, **environ)
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return list(caught.value.problems)


class TestSources:
    """Command line over environment over secrets over file over defaults."""

    def test_defaults(self) -> None:
        """Nothing needs to be set, and nothing is ever acted on by default."""
        loaded = LoadedSettings.defaults()
        assert loaded.settings == Settings()
        assert loaded.settings.mode == "recommend"
        assert loaded.settings.api.host == "127.0.0.1"
        assert loaded.settings.root_path == "/bundlekeel/standalone"
        assert set(loaded.origins.values()) == {"default"}

    def test_precedence_and_origins(self, tmp_path: Path) -> None:
        """Each source beats the ones before it, and every key says which one it was."""
        secrets = tmp_path / "secrets"
        (secrets / "..data").mkdir(parents=True)
        (secrets / ".hidden").write_text("x")
        (secrets / "admin__token").write_text("geheim\n")
        (secrets / "BUNDLEKEEL__cycle__interval").write_text("3s")
        (secrets / "store__call_timeout").write_text("1s")
        file = tmp_path / "config.yaml"
        file.write_text("cluster: file\nmode: act\ncycle: {interval: 2s}\nstore: {call_timeout: 4s}\napi:\n")
        environ = {
            "BUNDLEKEEL__CYCLE__INTERVAL": "4s",
            "BUNDLEKEEL__MODE": "observe",
            "BUNDLEKEEL__CLUSTER": "",
            "BUNDLEKEEL_SECRETS_DIR": str(secrets),
        }
        loaded = load_settings(file, {"cycle.interval": 5, "mode": None}, environ=environ)
        got = loaded.settings
        assert (got.cluster, got.mode, got.cycle.interval, got.store.call_timeout) == ("file", "observe", 5, 1)
        assert got.admin.token == SecretStr("geheim")
        assert {key: origin for key, origin in loaded.origins.items() if origin != "default"} == {
            "cluster": f"file:{file}:1",
            "mode": "env:BUNDLEKEEL__MODE",
            "cycle.interval": "cli",
            "store.call_timeout": f"secret:{secrets}/store__call_timeout",
            "admin.token": f"secret:{secrets}/admin__token",
        }

    def test_the_process_environment_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without an explicit one."""
        monkeypatch.setenv("BUNDLEKEEL__API__PORT", "0")
        assert load_settings(None).settings.api.port == 0

    def test_lists_mappings_and_null_in_the_environment(self, tmp_path: Path) -> None:
        """Lists and mappings as JSON, a list of hosts also with commas, null where it is allowed."""
        environ = {
            "BUNDLEKEEL__CAPACITY": '{"b*": {"cpu": "ignore"}}',
            "BUNDLEKEEL__CAPACITY__b1.example:8080__CORES": "2",
            "BUNDLEKEEL__API__ALLOWED_HOSTS": "a, b",
            "BUNDLEKEEL__API__SOCKET": "null",
            "BUNDLEKEEL__PARAMETERS__EXCLUDED_NAMESPACES": '["a/b"]',
            "BUNDLEKEEL__PARAMETERS__LOADBALANCERCPURESOURCEWEIGHT": "0.5",
            "BUNDLEKEEL__STORE": '{"batch_window": "1s"}',
        }
        got = load(tmp_path, "", None, **environ).settings
        assert got.capacity_overrides == (
            CapacityOverride(pattern="b*", ignore=("cpu",)),
            CapacityOverride(pattern="b1.example:8080", cores=2),
        )
        assert (got.api.allowed_hosts, got.api.socket, got.store.batch_window) == (("a", "b"), None, 1.0)
        assert got.parameters == {"excluded_namespaces": ("a/b",), "cpu_weight": 0.5}
        assert problems(tmp_path, BUNDLEKEEL__CAPACITY="{")[0].field == "capacity"

    def test_overrides_may_be_nested(self, tmp_path: Path) -> None:
        """Dotted or nested, and patterns of `capacity` keep their dots."""
        overrides = {"capacity.b1.example:8080.cores": 3, "store": {"batch_window": 0, "call_timeout": None}}
        got = load(tmp_path, "store: {call_timeout: 4}", overrides).settings
        assert got.capacity_overrides == (CapacityOverride(pattern="b1.example:8080", cores=3),)
        assert (got.store.batch_window, got.store.call_timeout) == (0, 4)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a: [", "line 1"),
            ("mode: act\nmode: observe", "line 2, column 1: the key 'mode' is given twice"),
            ("api: {1: 2}", "the key 1 is not a text"),
            ("- a", "holds a list"),
            ("5", "holds a number where `key: value` is expected"),
            ("a: 1\n*: {b: 1}", "line 2, column 2: expected alphabetic or numeric character, but found ':' (put *"),
            ("a: *-b", "found undefined alias '-b' (put * in quotes:"),
            ("cycle:\n\tinterval: 1", "cannot start any token (use spaces instead of tabs)"),
            ("cluster: x\nmode:act\n", "could not find expected ':' (write a space after each colon, also in"),
            ("mode:act\ncluster: x\n", "mapping values are not allowed here (here or in the line before:"),
            ("a: \x00", "not YAML"),
            ("a: !!python/object:os.system x", "could not determine a constructor"),
            ("x: 2026-99-99", "not YAML"),
        ],
    )
    def test_text_that_is_no_settings(self, tmp_path: Path, text: str, expected: str) -> None:
        """The message names the file and the place."""
        errors = problems(tmp_path, text)
        assert len(errors) == 1
        assert str(errors[0]).startswith(f"file:{tmp_path}/config.yaml: ")
        assert expected in str(errors[0])

    def test_a_problem_has_its_line(self, tmp_path: Path) -> None:
        text = (
            "mode: acts\n\ncycle:\n  interval: soon\napi: {port: x}\n"
            "windows:\n  - {cron: '* * * * *', minutes: 5, allow: al}\nparameters:\n  cpu_wait: 1\n"
        )
        result = {str(item).partition(" = ")[0] for item in problems(tmp_path, text)}
        keys = ((1, "mode"), (4, "cycle.interval"), (5, "api.port"), (7, "windows.0.allow"), (9, "parameters.cpu_wait"))
        assert result == {f"file:{tmp_path}/config.yaml:{line}: {key}" for line, key in keys}
        missing = problems(tmp_path, "mode: act\ncounters: {source: prometheus}\n")
        assert str(missing[0]).startswith(f"file:{tmp_path}/config.yaml: prometheus.url: ")

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file"):
            load_settings(tmp_path / "none.yaml", environ={})
        with pytest.raises(ConfigError, match="cannot be read"):
            load_settings(tmp_path, environ={})
        (tmp_path / "latin").write_bytes(b"\xff")
        with pytest.raises(ConfigError, match="not UTF-8"):
            load_settings(tmp_path / "latin", environ={})
        with pytest.raises(ConfigError, match="secret:"):
            load_settings(None, environ={}, secrets_dir=tmp_path / "none")
        with pytest.raises(ConfigError) as error:
            load_settings(None, environ={"BUNDLEKEEL_SECRETS_DIR": "/nope"})
        folder = "the secrets directory (BUNDLEKEEL_SECRETS_DIR) cannot be read: No such file or directory"
        assert str(error.value) == f"secret:/nope: {folder}"
        (tmp_path / "mode").write_bytes(b"\xff")
        (tmp_path / "latin").unlink()
        with pytest.raises(ConfigError) as error:
            load_settings(None, environ={}, secrets_dir=tmp_path)
        assert str(error.value) == f"secret:{tmp_path / 'mode'}: cannot be read: it is not UTF-8 text"

    def test_a_file_of_secrets_that_is_no_setting(self, tmp_path: Path) -> None:
        (tmp_path / "ops-chat-url").write_text("https://chat.example/services/T0/B0/x")
        with pytest.raises(ConfigErrors) as error:
            load_settings(None, environ={}, secrets_dir=tmp_path)
        assert "unknown key" in str(error.value) and "chat.example" not in str(error.value)

    @pytest.mark.parametrize("text", ["", "# nothing", "parameters:\ncapacity:\napi:\n", "api: {}\nparameters: {}"])
    def test_empty_sections_say_nothing(self, tmp_path: Path, text: str) -> None:
        """A section whose lines are all comments is not an error."""
        assert load(tmp_path, text).settings == Settings()


class TestRefusals:
    """One finding per mistake: where, key, value, allowed, suggestion."""

    @pytest.mark.parametrize(
        ("text", "field", "expected"),
        [
            ("cycle: {intervall: 3}", "cycle.intervall", "unknown key; did you mean 'interval'?"),
            ("Mode: act", "Mode", "did you mean 'mode'?"),
            ("cycle.interval: 20s", "cycle.interval", "unknown key; it belongs below `cycle`, as `interval`"),
            ("parameters: {cool_down_minutes: 30}", "parameters.cool_down_minutes", "; cool_down_seconds takes 30m"),
            (
                "parameters: {loadBalancerAutoBundleSplitEnabled: false}",
                "parameters.loadBalancerAutoBundleSplitEnabled",
                "`bundlekeel takeover --split off` turns it off; that of Bundlekeel is `split_enabled`",
            ),
            (
                "parameters: {loadBalancerSheddingIntervalMinutes: 1}",
                "parameters.loadBalancerSheddingIntervalMinutes",
                "unknown parameter; a setting of the brokers, not of Bundlekeel, whose own is `cycle.interval` (",
            ),
            ("max_moves_per_hour: 20", "max_moves_per_hour", "unknown key; it belongs below `parameters`"),
            ("maxUnloadPercentage: 20", "maxUnloadPercentage", "unknown key; it belongs below `parameters`"),
            (
                "loadBalancerSheddingEnabled: on",
                "loadBalancerSheddingEnabled",
                "a setting of the brokers, not of Bundlekeel: `bundlekeel takeover` turns it off",
            ),
            (
                "managedLedgerDefaultAckQuorum: 2",
                "managedLedgerDefaultAckQuorum",
                "broker.conf, which is not read here",
            ),
            ("api: {webServicePort: 1}", "api.webServicePort", "broker.conf, which is not read here"),
            (
                "metadataStoreUrl: 'zk:a:1'",
                "metadataStoreUrl",
                "did you mean 'metadata_store'? Other keys of broker.conf",
            ),
            (
                "parameters: {managedLedgerDefaultAckQuorum: 2}",
                "parameters.managedLedgerDefaultAckQuorum",
                "unknown parameter; a setting of the brokers",
            ),
            (
                "parameters: {loadBalancerSheddingEnabled: false}",
                "parameters.loadBalancerSheddingEnabled",
                "unknown parameter; a setting of the brokers, not of Bundlekeel: `bundlekeel takeover` turns it off",
            ),
            ("api: {strategy: avg}", "api.strategy", "unknown key; it belongs at the top"),
            (
                "leadership: {member_id: a}",
                "leadership.member_id",
                "unknown key; it belongs at the top (allowed: seats",
            ),
            ("cycle: {windows: []}", "cycle.windows", "unknown key; it belongs at the top"),
            ("admin: {api: {port: 80}}", "admin.api", "unknown key; it belongs at the top"),
            ("parameters: {mode: act}", "parameters.mode", "unknown parameter; it belongs at the top"),
            ("parameters: {api: {port: 80}}", "parameters.api", "unknown parameter; it belongs at the top"),
            ("interval: 3", "interval", "'cycle.interval' or 'counters.interval'"),
            ("labels: {a: b}", "labels", "did you mean 'prometheus.labels'?"),
            ("mode: auto", "mode", "allowed: observe, recommend, act"),
            (
                "mode: off",
                "mode",
                "mode = false: not allowed; YAML reads off, no, on and yes without quotes as false and",
            ),
            ("mode: on", "mode", "mode = true: not allowed; YAML reads"),
            (
                "windows: [{cron: 0 2 * * *, minutes: 5, allow: al}]",
                "windows.0.allow",
                "(allowed: act, overload, nothing)",
            ),
            ("windows: [{minutes: 5, allow: act}]", "windows.0.cron", "windows.0.cron: it is missing"),
            ("compat: 3.0", "compat", "none, 4.0, 4.2"),
            ("_env_file: a", "_env_file", "unknown key"),
            ("cluster: a/b", "cluster", "allowed: letters, digits, - _ ."),
            ("cluster: {a: 1}", "cluster", "keys below it are not allowed (allowed: letters"),
            ("strategy: {name: agv}", "strategy", "strategy: keys below it are not allowed (allowed: avg"),
            ("mode: {a: b}", "mode", "mode: keys below it are not allowed (allowed: observe"),
            ("cycle: 5", "cycle", "allowed: interval"),
            ("cycle: {interval: soon}", "cycle.interval", "not a duration (allowed: duration like"),
            ("cycle: {interval: 10ms}", "cycle.interval", "cycle.interval = '10ms': not allowed (allowed: dur"),
            ("cycle: {interval: 0}", "cycle.interval", ", 100ms or more)"),
            ("cycle: {interval: .inf}", "cycle.interval", "not allowed"),
            ("cycle: {interval: true}", "cycle.interval", "not a duration"),
            ("metadata_store: 'zk:h:21811111'", "metadata_store", "there is no port 21811111 (allowed: ports from 1"),
            ("metadata_store: etcd:h:1", "metadata_store", "etcd is not supported by this release"),
            ("metadata_store: 'zk:a:1, b:1'", "metadata_store", "store; it contains a blank (allowed: ZooK"),
            ("metadata_store: 'zk:a:1/x/'", "metadata_store", "store; it ends with a slash (allowed: ZooK"),
            (
                "configuration_store: zk:a:2181/p,b:2181/p",
                "configuration_store",
                "= 'zk:a:2181/p,b:2181/p': the chroot stands once, after the last host (allowed: ZooKeeper in",
            ),
            ("metadata_store: 'zk:'", "metadata_store", "zk:host1:2181,host2:2181/chroot"),
            ("configuration_store: 'a b'", "configuration_store", "or null"),
            ("admin: {read_timeout: 500ms}", "admin.read_timeout", ", 1s or more)"),
            ("admin: {tls_verify: maybe}", "admin.tls_verify", "true, false"),
            ("api: {port: 70000}", "api.port", ", from 0 to 65535)"),
            ("api: {advertised_url: 'host:1'}", "api.advertised_url", "http(s)://host:port"),
            ("api: {allowed_hosts: [1]}", "api.allowed_hosts.0", "list of texts"),
            ("api: {allowed_hosts: 'a:1, http://b:1'}", "api.allowed_hosts", "'http://b:1' is an address, not a host"),
            ("strategy: best", "strategy", "avg, threshold, overload"),
            ("capacity: {b: {cores: 0}}", "capacity.b.cores", "number, more than 0"),
            ("capacity: {b.c: {nic_gbps: -1}}", "capacity.b.c.nic_gbps", "number, more than 0"),
            ("capacity: {b: {nic_gbits: 1}}", "capacity.b.nic_gbits", "did you mean 'nic_gbps'?"),
            ("capacity: {b: {}}", "capacity.b", "sets nothing"),
            ("capacity: {b: 5}", "capacity.b", "nic_gbps, cores"),
            ("capacity: {nic_gbps: 10}", "capacity.nic_gbps", '(allowed: "*": {nic_gbps: 10} for all of them, or'),
            ("capacity: {b: {cores: 1, cpu: ignore}}", "capacity.b.cores", "cpu is ignored"),
            ("capacity: {'/[/': {cores: 1}}", "capacity./[/", "not a regular expression"),
            ("capacity: {'': {cores: 1}}", "capacity", "an empty pattern"),
            ("parameters: 5", "parameters", "mapping, lines of `name: value`"),
            ("parameters: {cpu_wait: 1}", "parameters.cpu_wait", "did you mean 'cpu_weight'?"),
            ("parameters: {cool_down_seconds: 3M}", "parameters.cool_down_seconds", "), or a duration like 30m)"),
            ("parameters: {split_max_topics: x}", "parameters.split_max_topics", "(allowed: a whole number (topics))"),
            ("quotas: {groups: [a]}", "quotas.groups", "mapping of groups by name, such as {acme: {members:"),
            ("parameters: {cpu_weight: -1}", "parameters.cpu_weight", "a number, 0 or more"),
            ("parameters: {cpu_weight: .nan}", "parameters.cpu_weight", "a number, 0 or more"),
            ("parameters: {split_hit_count: .inf}", "parameters.split_hit_count", "a whole number"),
            ("parameters: {cpu_weight: {a: 1}}", "parameters.cpu_weight", "a number"),
            ("parameters: {cpu_weight: }", "parameters.cpu_weight", "a number"),
            ("parameters: {minUnloadMessage: }", "parameters.minUnloadMessage", "a number"),
            ("parameters: {strategy: x}", "parameters.strategy", "avg, threshold, overload"),
            (
                "parameters: {loadBalancerLoadSheddingStrategy: a.OwnShedder}",
                "parameters.loadBalancerLoadSheddingStrategy",
                "AvgShedder",
            ),
            ("strategy: avg\nparameters: {strategy: avg}", "parameters.strategy", "the same as strategy"),
            ("leadership: {heartbeat: 4s}", "leadership.heartbeat", "at most 3.33s, a third of store.session_timeout"),
            ("member_id: a/b", "member_id", "without /"),
            ("cluster: 12", "cluster", "YAML reads this as a number; put it in quotes"),
            ("windows: [{cron: 0 2 * * *, minutes: -1}]", "windows.0.minutes", "(allowed: whole number, from 1 to "),
            ("notify: {webhooks: [{name: a, url: x}]}", "notify.webhooks.0.url", "(allowed: http(s)://host"),
            (
                "notify: {webhooks: [{name: a, kind: pager}]}",
                "notify.webhooks.0.kind",
                "= 'pager': not allowed (allowed: g",
            ),
            ("traces: {otlp_endpoint: 'collector:4318'}", "traces.otlp_endpoint", "(allowed: http(s)://host"),
            ("capacity: {'/[a/': {cores: 1}}", "capacity./[a/", "(allowed: a regular expression between two /"),
            ("metadata_store: foo", "metadata_store", "zk:host1:2181,host2:2181/chroot)"),
            (
                "api: {tls: {cert_file: a.pem}}",
                "api.tls.key_file",
                "cert_file and key_file go together; key_file is missing (allowed: both, or neither)",
            ),
            ("api: {tls: {key_file: a.pem}}", "api.tls.cert_file", "; cert_file is missing (allowed: both"),
            ("admin: {tls_cert_file: a.pem}", "admin.tls_key_file", "; tls_key_file is missing (allowed: both"),
            ("admin: {tls_key_file: a.pem}", "admin.tls_cert_file", "; tls_cert_file is missing (allowed: both"),
            ("metadata_store: zk:a:2181,b:99999/x", "metadata_store", "there is no port 99999"),
            ("extensible: {service_url: 'pulsar://a:0'}", "extensible.service_url", "ports from 1 to 65535"),
            ("api: {advertised_url: 'http://a:99999'}", "api.advertised_url", "ports from 1 to 65535"),
            ("prometheus: {url: 'http://a:99999/x'}", "prometheus.url", "(allowed: http(s)://host"),
            ("api: {host: ''}", "api.host", "an IP address (0.0.0.0 or :: is every interface)"),
            ("api: {host: '127.0.0.1:8090'}", "api.host", "without a port"),
            ("store: {session_timeout: 1h}", "store.session_timeout", ", from 1s to 5m)"),
            ("parameters: {excluded_namespaces: ['acme/*']}", "parameters.excluded_namespaces", "'acme/*' matches"),
            ("parameters: {excluded_namespaces: [acme]}", "parameters.excluded_namespaces", "excluded_tenants)"),
            (
                "parameters: {loadBalancerSheddingExcludedNamespaces: a/b/c}",
                "parameters.loadBalancerSheddingExcludedNamespaces",
                "tenant/namespace, whole names",
            ),
            ("parameters: {included_namespaces: [acme]}", "parameters.included_namespaces", "tenant/*"),
            ("parameters: {excluded_tenants: [acme/orders]}", "parameters.excluded_tenants", "excluded_namespaces)"),
            ("parameters: {excluded_brokers: ['http://b:1']}", "parameters.excluded_brokers", "host:port"),
        ],
    )
    def test_one_mistake(self, tmp_path: Path, text: str, field: str, expected: str) -> None:
        """Named with the file, the dotted key and what would be right."""
        errors = problems(tmp_path, text)
        assert [problem.field for problem in errors] == [field]
        assert re.match(rf"file:{tmp_path}/config\.yaml(:\d+)?: {re.escape(field)}", str(errors[0]))
        assert expected in str(errors[0])

    @pytest.mark.parametrize(
        ("text", "end"),
        [
            ("Mode: act", "unknown key; did you mean 'mode'?"),
            ("max_moves_per_hour: 20", "unknown key; it belongs below `parameters`"),
            ("quick_interval: 3", "unknown key; did you mean 'counters.quick_interval'?"),
        ],
    )
    def test_what_is_meant_stands_alone(self, tmp_path: Path, text: str, end: str) -> None:
        (errors,) = problems(tmp_path, text)
        assert str(errors).endswith(end)

    def test_all_mistakes_at_once(self, tmp_path: Path) -> None:
        """A person fixes a file in one go; the one ConfigError speaks for the first."""
        text = "mode: x\ncycle: {interval: y}\nparameters: {cpu_weight: -1, zzz: 1}"
        errors = problems(tmp_path, text, BUNDLEKEEL__API__PORT="many", BUNDLEKEEL__FOO__BAR="1")
        assert {problem.field for problem in errors} == {
            *("mode", "cycle.interval", "parameters.cpu_weight", "parameters.zzz", "api.port", "foo")
        }
        by_field = {problem.field: str(problem) for problem in errors}
        assert by_field["api.port"].startswith("env:BUNDLEKEEL__API__PORT: api.port = 'many'")
        assert by_field["foo"].startswith("env:BUNDLEKEEL__FOO__BAR: foo")

    def test_the_same_parameter_twice(self, tmp_path: Path) -> None:
        """Both names are in the message."""
        text = "parameters: {loadBalancerBandwithInResourceWeight: 1, loadBalancerBandwidthInResourceWeight: 1}"
        message = str(problems(tmp_path, text)[0])
        assert "loadBalancerBandwithInResourceWeight" in message
        assert "loadBalancerBandwidthInResourceWeight" in message

    def test_secrets_never_show(self, tmp_path: Path) -> None:
        """Not in messages, not even under a misspelt key; not in the representation of the settings."""
        text = "admin: {token: [geheim], tokn: geheim, mode: geheim}\napi_token: geheim"
        errors = problems(tmp_path, text)
        assert len(errors) == 4
        assert all("geheim" not in str(problem) + repr(problem.value) for problem in errors)
        both = problems(tmp_path, "admin: {token: geheim, token_file: /f}")
        assert "geheim" not in str(both[0])
        assert "admin.token is set as well" in str(both[0])
        assert both[0].field == "admin.token_file"
        assert "geheim" not in repr(load(tmp_path, "admin: {token: geheim}"))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "api: {auth: {jwt_key_file: k, jwt_audience: a}}",
                "api.auth.jwt_issuer: needed with jwt_key_file: without it any token that one of these keys "
                "signed would be accepted",
            ),
            ("notify: {webhooks: [{name: a}]}", "notify.webhooks.0.url_file: give exactly one of url and url_file"),
            ("admin: {token: t, token_file: f}", "admin.token_file: admin.token is set as well; give one of the two"),
        ],
    )
    def test_what_is_allowed_is_left_out_where_no_value_is_wrong(self, tmp_path: Path, text: str, message: str) -> None:
        (errors,) = problems(tmp_path, text)
        place, _, rest = str(errors).removeprefix(f"file:{tmp_path}/config.yaml").partition(": ")
        assert (rest, errors.allowed) == (message, "") and place in ("", ":1")

    def test_the_model_alone_refuses_as_well(self) -> None:
        """Code that builds Settings itself gets the same rules."""
        for wrong in (
            {"parameters": {"maxUnloadPercentage": 2}},
            {"strategy": "avg", "parameters": {"strategy": "avg"}},
            {"capacity": {"b": {"cores": -1}}},
        ):
            with pytest.raises(ValidationError):
                Settings(**wrong)
        assert Settings(parameters={"loadBalancerLoadSheddingStrategy": "x.UniformLoadShedder"}).strategy == "uniform"

    def test_built_settings_read_no_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """pydantic-settings would else read the variables CLUSTER and MODE."""
        monkeypatch.setenv("CLUSTER", "other")
        assert Settings(mode="act").cluster == "standalone"

    def test_frozen(self) -> None:
        """Settings do not change under a running cycle."""
        settings = Settings()
        with pytest.raises(ValidationError):
            settings.mode = "act"
        with pytest.raises(ValidationError):
            settings.cycle.interval = 1


class TestParameters:
    """Our names, Pulsar's names, adopted values, and who wins."""

    def test_defaults_are_those_of_the_core(self) -> None:
        """Nothing set, nothing adopted."""
        got, origins = to_parameters(Settings())
        assert got == Parameters()
        assert set(origins) == set(BY_NAME)
        assert set(origins.values()) == {"default"}

    def test_the_shedding_interval_is_no_parameter(self, tmp_path: Path) -> None:
        """Cycles come every 10 s by a setting of ours; Pulsar's minutes would be taken for something they are not."""
        assert load(tmp_path).settings.cycle.interval == 10.0
        (problem,) = problems(tmp_path, "parameters: {loadBalancerSheddingIntervalMinutes: 1}")
        assert problem.field == "parameters.loadBalancerSheddingIntervalMinutes"
        assert "unknown parameter" in str(problem)

    def test_units_of_either_name(self, tmp_path: Path) -> None:
        """Pulsar's keys carry Pulsar's units; ours may be written as durations."""
        ours = load(tmp_path, "parameters: {cool_down_seconds: 5m, excluded_namespaces: 'a/b, c/d'}").settings
        theirs = load(tmp_path, "parameters: {loadBalancerSheddingGracePeriodMinutes: 5}").settings
        assert to_parameters(ours)[0].cool_down_seconds == to_parameters(theirs)[0].cool_down_seconds == 300
        assert to_parameters(ours)[0].excluded_namespaces == ("a/b", "c/d")

    def test_explicit_wins_over_adopted_wins_over_default(self, tmp_path: Path) -> None:
        """Also for the strategy, and a setting that happens to equal our default still is explicit."""
        loaded = load(
            tmp_path, "adopt_broker_settings: true\nplacement: least_resource_usage\nparameters: {cpu_weight: 1}"
        )
        adopted = {
            "loadBalancerCPUResourceWeight": "0.3",
            "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder",
            "loadBalancerLoadPlacementStrategy": "org.apache.pulsar.X.LeastLongTermMessageRate",
            "loadBalancerSheddingGracePeriodMinutes": "7",
            "loadBalancerSheddingExcludedNamespaces": "[a/b]",
            "maxUnloadPercentage": "7",
            "brokerServicePort": "6650",
        }
        got, origins = to_parameters(loaded.settings, adopted, origins=loaded.origins)
        file = f"file:{tmp_path}/config.yaml"
        assert (got.cpu_weight, origins["cpu_weight"]) == (1.0, f"{file}:3")
        assert (got.placement, origins["placement"]) == ("least_resource_usage", f"{file}:2")
        assert (got.strategy, origins["strategy"]) == ("threshold", "broker")
        assert (got.cool_down_seconds, origins["cool_down_seconds"]) == (420.0, "broker")
        assert (got.excluded_namespaces, origins["excluded_namespaces"]) == (("a/b",), "broker")
        assert got.max_unload_ratio == Parameters().max_unload_ratio
        assert origins["max_unload_ratio"] == "default (the brokers' maxUnloadPercentage=7 cannot be used)"

    def test_one_key_of_the_brokers_reaches_both_strategies(self, tmp_path: Path) -> None:
        """`maxUnloadPercentage`, written or adopted."""
        adopted, _ = to_parameters(Settings(adopt_broker_settings=True), {"maxUnloadPercentage": "0.3"})
        written, _ = to_parameters(load(tmp_path, "parameters: {maxUnloadPercentage: 0.3}").settings)
        for got in (adopted, written):
            assert (got.max_unload_ratio, got.uniform_max_unload_ratio) == (0.3, 0.3)

    @pytest.mark.parametrize(("current", "old", "expected"), [("1.0", "0.5", 0.5), ("0.7", "0.5", 0.7), ("1", "1", 1)])
    def test_brokers_report_both_spellings(self, current: str, old: str, expected: float) -> None:
        adopted = {"loadBalancerBandwidthInResourceWeight": current, "loadBalancerBandwithInResourceWeight": old}
        assert to_parameters(Settings(adopt_broker_settings=True), adopted)[0].bandwidth_in_weight == expected

    def test_a_layer_overrides_another_whatever_the_spelling(self, tmp_path: Path) -> None:
        """The file uses Pulsar's name, the environment ours: no contradiction."""
        loaded = load(
            tmp_path, "parameters: {maxUnloadPercentage: 0.3}", BUNDLEKEEL__PARAMETERS__MAX_UNLOAD_RATIO="0.4"
        )
        # One key of Pulsar's for two parameters of ours.
        assert loaded.settings.parameters == {"max_unload_ratio": 0.4, "uniform_max_unload_ratio": 0.3}
        hoisted = load(tmp_path, "strategy: avg", BUNDLEKEEL__PARAMETERS__STRATEGY="uniform")
        assert (hoisted.settings.strategy, hoisted.origins["strategy"]) == (
            "uniform",
            "env:BUNDLEKEEL__PARAMETERS__STRATEGY",
        )


class TestDurations:
    """The one way to write a time."""

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("10s", 10), ("500ms", 0.5), ("1m", 60), ("2h", 7200), ("1d", 86400), ("1.5", 1.5), (3, 3), (" 5 s ", 5)],
    )
    def test_spellings(self, text: object, seconds: float) -> None:
        assert parse_duration(text) == seconds
        assert parse_duration(format_duration(seconds)) == seconds

    @pytest.mark.parametrize("text", ["", "s", "-1s", "1 week", "1e3s", None, True, [1], "nan"])
    def test_no_durations(self, text: object) -> None:
        """Refused."""
        with pytest.raises(ValueError, match="duration"):
            parse_duration(text)


def test_every_key_says_why() -> None:
    """The reference page has no empty cell."""
    assert [row.key for row in rows() if not row.why or not row.allowed] == []


def test_relative_files_belong_to_the_folder_of_the_settings_file(tmp_path: Path) -> None:
    """A command run elsewhere must reach the socket of the sidecar the file describes, not one in its own folder."""
    loaded = load(tmp_path, "api: {socket: keel.sock}\n")
    assert loaded.located(loaded.settings.api.socket) == tmp_path / "keel.sock"
    assert loaded.located(Path("/run/keel.sock")) == Path("/run/keel.sock")
    assert loaded.located(None) is None
    assert LoadedSettings.defaults().located(Path("keel.sock")) == Path("keel.sock")


def test_a_leader_keeps_a_margin(tmp_path: Path) -> None:
    """With none it would act until the very moment at which the store lets another one lead."""
    for inputs in ("0", "0.01"):
        (problem,) = problems(tmp_path, f"leadership:\n  margin_ratio: {inputs}\n")
        assert (problem.field, problem.allowed) == ("leadership.margin_ratio", "number, from 0.05 to 0.9")
    assert load(tmp_path, "leadership:\n  margin_ratio: 0.05\n").settings.leadership.margin_ratio == 0.05


def test_the_digest_is_of_what_sidecars_have_in_common(tmp_path: Path) -> None:
    """Two hosts differ in addresses, names and files; what a leader decides by has to be alike."""

    def digest(text: str) -> str:
        return shared_digest(load(tmp_path, f"cluster: c\n{text}").settings)

    of_a_host = (
        "member_id: a\nmetadata_store: zk:a:2181\napi: {port: 1}\nadmin: {token: x}\njournal: {path: a}\n"
        "logging: {level: debug}\n"
    )
    alike, plain = digest(of_a_host), digest("")
    assert alike == plain and len(plain) == 12
    decide = (
        "mode: act\n",
        "capacity: {'*': {cores: 4}}\n",
        "parameters: {max_moves_per_hour: 3}\n",
        "strategy: transfer\n",
    )
    assert len({plain, *map(digest, decide)}) == 1 + len(decide)
