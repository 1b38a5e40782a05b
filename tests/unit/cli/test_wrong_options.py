"""What commands say of options that name something wrong: the option as it was typed, what is allowed, the way out."""

from __future__ import annotations

import datetime as dt
import shlex
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bundlekeel.cli.exit_codes import CliError
from bundlekeel.cli.session import moment_ms
from bundlekeel.model.errors import ConfigError, NotFound
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring
from tests.unit.cli.test_commands import Sidecar, served, sidecar

__all__ = ["served", "sidecar"]


def test_a_wrong_parameter_is_named_with_its_option(sidecar: Sidecar) -> None:
    """Of several `--set` its value alone would not say which."""
    wrong = ConfigError("unknown parameter", field=r"parameters.fo\o", value="1", allowed="a name")
    sidecar.service.fail["make_plan"] = wrong
    told = sidecar.run("plan", "--set", "cpu_weight=1", "--set", "bandwidth_in_weight=1")
    assert told.exit_code == 2 and r"--set fo\o = '1': unknown parameter (allowed: a name)" in told.stderr


def test_an_https_address_of_a_sidecar_without_tls_is_told_the_other_one(sidecar: Sidecar) -> None:
    """Advice to start a sidecar would not help: one answers there."""
    told = sidecar.run("status", "--url", sidecar.url.replace("http", "https"), to="none")
    assert told.exit_code == 3 and f"does not use TLS; try {sidecar.url}" in told.stderr
    assert "SSL" not in told.stderr and "start one" not in told.stderr


def test_a_broker_or_namespace_that_is_not_there_is_no_empty_channel(sidecar: Sidecar) -> None:
    """As with `bundles`; brokers that are gone are named while bundles are still theirs."""
    sidecar.shop.follow_channel()
    sidecar.service.fail["bundles"] = NotFound("no broker 'x'; nearest: broker-0.pulsar:8080")
    told = sidecar.run("channel", "--broker", "x")
    assert told.exit_code == 1 and "no broker 'x'; nearest:" in told.stderr and told.stdout == ""
    assert "no namespace" not in sidecar.run("channel", "--namespace", "shop/orders").stderr
    assert "shop/nowhere does not exist" in sidecar.run("channel", "--namespace", "shop/nowhere").stderr
    assert "--state 'foo' is not one of 'Init', 'Free', 'Owned'" in sidecar.run("channel", "--state", "foo").stderr


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (("transfer", "--force"), ""),
        (("pin", "--until", "1h"), ""),
        (("pause", "--resaon", "x"), "; did you mean --reason?"),
    ],
)
def test_an_unknown_option_suggests_what_is_near(sidecar: Sidecar, given: tuple[str, ...], hint: str) -> None:
    """The two dashes alone are no likeness."""
    told = sidecar.run(*given, to="none").stderr
    assert told == f"error: no such option: {given[1]}{hint or f'; see `bundlekeel {given[0]} -h`'}\n"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("token create", "error: no such command 'create'; commands: new; see `bundlekeel token -h`\n"),
        ("history display", "no such command 'display'; commands: ls, show, check, export, sql; see"),
        ("quota lst", "did you mean 'ls', 'set'?"),
        ("jurnal", "error: no such command 'jurnal'; did you mean 'journal'?\n"),
    ],
)
def test_a_command_that_is_not_there_is_told_the_nearest_ones_or_all(command: str, says: str) -> None:
    """Of a group as of the program."""
    told = CliRunner().invoke(make_app(FakeWiring), command.split(), env={"COLUMNS": "100"})
    assert told.exit_code == 2 and says in told.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("drain --yes", "missing argument 'BROKER'; see `bundlekeel drain -h`"),
        ("pause", "missing option '--reason'; see `bundlekeel pause -h`"),
        ("status -o xml", "--output 'xml' is not one of 'table', 'wide', 'json', 'yaml'; see `bundlekeel status -h`"),
        (
            "journal --limit many",
            "--limit 'many': expected a whole number, from 1 to 10000; see `bundlekeel journal -h`",
        ),
        ("journal --limit 0", "--limit '0': expected from 1 to 10000; see `bundlekeel journal -h`"),
        ("journal --limit", "option '--limit' requires an argument"),
        ("status now", "got unexpected extra argument(s) (now); see `bundlekeel status -h`"),
        ("pause --reason x --for -1h", "--for '-1h': expected a duration of more than 0s, such as 90s, 30m, 2h or 1d"),
        ("-o json status", "no such option: -o; options come after the command; see `bundlekeel -h`"),
        ("bundles -n shop", "--namespace 'shop': expected tenant/namespace; see `bundlekeel bundles -h`"),
        ("channel -n shop/a/b", "--namespace 'shop/a/b': expected tenant/namespace; see `bundlekeel channel -h`"),
        ("takeover --namespace shop/.. --reason x", "--namespace 'shop/..': expected tenant/namespace"),
        ("deadman --after 5s", "--after '5s': expected 30s or more, 3 times `cycle.interval`"),
        (
            "quota set g --member t:a --limit publish_bytes --reason x",
            "--limit 'publish_bytes': expected a kind and its rate, such as publish_bytes=1000000",
        ),
        (
            "journal --since 24",
            "--since '24': expected a duration such as 24h or 90m (ago), today, yesterday, or a local time "
            "such as 18:05 or 2026-11-22T18:05",
        ),
    ],
)
def test_wrong_usage_is_one_line(sidecar: Sidecar, command: str, says: str) -> None:
    """As every other error, with the help that shows what is right; no frame, whose lines no search finds."""
    told = sidecar.run(*command.split(), to="none", env={"COLUMNS": "80"})
    assert (told.exit_code, told.stderr, told.stdout) == (2, f"error: {says}\n", "")


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("BUNDLEKEEL_URL", "localhost:8090", "BUNDLEKEEL_URL 'localhost:8090': expected http://host:port"),
        ("BUNDLEKEEL_URL", "http://a:b@c", "BUNDLEKEEL_URL: "),
        ("BUNDLEKEEL_TOKEN_FILE", "/nowhere", "BUNDLEKEEL_TOKEN_FILE /nowhere cannot be read"),
        ("BUNDLEKEEL_TLS_CA", "/nowhere", "BUNDLEKEEL_TLS_CA: TLS files /nowhere cannot be used"),
    ],
)
def test_a_value_of_a_variable_is_told_by_its_variable(variable: str, value: str, says: str) -> None:
    """Nobody typed the option."""
    command = ["status", *(() if variable == "BUNDLEKEEL_URL" else ("--url", "https://127.0.0.1:1"))]
    told = CliRunner(env={variable: value}).invoke(make_app(FakeWiring), command)
    assert told.exit_code == 2 and told.stderr.startswith(f"error: {says}")


def test_a_command_alone_that_needs_another_prints_its_help(sidecar: Sidecar) -> None:
    """No error without a text in front of it."""
    told = sidecar.run("config", to="none")
    assert told.exit_code == 2 and "Usage: bundlekeel config" in told.output and "error" not in told.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("pause --scope shop", "'shop' is not a valid pause scope (allowed: tenant:NAME, "),
        ("exclude shop", "'shop' is not a pattern of a scope (allowed: t:TENANT, "),
        ("quota set g --member t:demo --limit publish_bytes=-1", "--limit publish_bytes = -1"),
        ("quota set g --member demo --limit publish_bytes=10MB", "--member 'demo'"),
        ("quota set 'a b' --member t:demo --limit publish_bytes=10MB", "NAME 'a b'"),
        ("plan --scale -1", "--scale -1: not allowed (allowed: more than 0 and at most 1000)"),
        ("plan --set cpu_wait=1", "--set cpu_wait=1: unknown parameter; did you mean 'cpu_weight'? (allowed: "),
        ("plan --set cpu_weight=-1", "--set cpu_weight=-1: not allowed (allowed: a number, 0 or more (ratio))"),
        ("plan --add-broker a/b", "--add-broker 'a/b': cannot be a broker id (allowed: a host name, or host:port: "),
        ("drain 'b1 :8080'", "broker 'b1 :8080': cannot be a broker id (allowed: a host name, or host:port: "),
        ("uncordon b/1", "broker 'b/1': cannot be a broker"),
        ("bundles --broker 'b 1'", "--broker 'b 1': cannot be a broker"),
        ("channel --broker 'b 1'", "--broker 'b 1': cannot be a broker"),
        ("plan --remove-broker b:1 --remove-broker 'b 1'", "--remove-broker 'b 1': cannot be a broker"),
        ("transfer shop/orders/0x00000000_0x40000000 --to 'b 1'", "--to 'b 1': cannot be a broker"),
        ("why 'shop/or ders/0x00000000_0x40000000'", "'shop/or ders/0x00000000_0x40000000' cannot be a name"),
        ("where 'shop/or ders' --if-unowned", "'shop/or ders' cannot be a name"),
        ("resume --scope shop", "'shop' is not a valid pause scope (allowed: tenant:NAME, "),
        ("include shop", "'shop' is not a pattern of a scope (allowed: t:TENANT, "),
        ("pin shop/or+ders/0x00000000_0x40000000", "'shop/or+ders/0x00000000_0x40000000' cannot be a name (allowed: "),
        (
            "unpin 0x00000000_0x40000000",
            "'0x00000000_0x40000000' cannot be a name (allowed: tenant/namespace, a bundle",
        ),
        ("unload shop/or+ders", "'shop/or+ders' cannot be a name"),
        ("split http://shop/orders/created", "'http://shop/orders/created' cannot be a name"),
        ("transfer shop//created --to b:8080", "'shop//created' cannot be a name"),
    ],
)
def test_a_value_is_checked_before_a_sidecar_is_asked(command: str, says: str) -> None:
    """Nobody has to start one to learn what is wrong with it."""
    told = without_sidecar(command)
    assert told.exit_code == 2 and says in told.stderr
    assert "(allowed: " in told.stderr and "no sidecar" not in told.stderr


@pytest.mark.parametrize("option", ["--tls-ca", "--tls-cert", "--tls-key"])
def test_files_of_tls_need_an_address_with_tls(option: str) -> None:
    """Who names a CA believes that the connection is encrypted, and so is the token."""
    for address in (("--url", "http://127.0.0.1:1"), ("--socket", "/nonexistent.sock")):
        told = CliRunner().invoke(make_app(FakeWiring), ["status", *address, option, "ca.pem"])
        assert told.exit_code == 2 and told.stderr.startswith(f"error: {option} has no effect with ")
        assert "use an https:// address, or omit it" in told.stderr


def test_a_key_needs_its_certificate() -> None:
    """It was not shown to the sidecar, which refused."""
    told = CliRunner().invoke(make_app(FakeWiring), ["status", "--url", "https://127.0.0.1:1", "--tls-key", "k.pem"])
    assert told.exit_code == 2 and "--tls-key has no effect without --tls-cert" in told.stderr


def test_a_file_that_holds_no_certificate_is_told_in_words(tmp_path: Path) -> None:
    """Without OpenSSL's code and line."""
    (tmp_path / "ca").write_text("no PEM")
    command = ["status", "--url", "https://127.0.0.1:1", "--tls-ca", str(tmp_path / "ca")]
    told = CliRunner().invoke(make_app(FakeWiring), command).stderr
    assert told == f"error: --tls-ca: TLS files {tmp_path / 'ca'} cannot be used: no certificate or crl found\n"


def test_a_certificate_that_cannot_be_used_is_told_by_its_option(tmp_path: Path) -> None:
    """The message named `--tls-ca`, which was not given."""
    (tmp_path / "cert").write_text("no PEM")
    command = ["status", "--url", "https://127.0.0.1:1", "--tls-cert", str(tmp_path / "cert")]
    told = CliRunner().invoke(make_app(FakeWiring), command)
    assert told.exit_code == 2
    assert told.stderr.startswith(
        f"error: --tls-cert without --tls-key: TLS files {tmp_path / 'cert'} cannot be used: "
    )


@pytest.mark.parametrize(("given", "at"), [("07:09", "2026-11-28T07:09"), ("00:00", "2026-11-28T00:00")])
def test_an_hour_alone_is_one_of_today(given: str, at: str) -> None:
    """Local, as all other times; it was refused."""
    now = dt.datetime.fromisoformat("2026-11-28T07:36:59").astimezone()
    assert moment_ms(given, now, "wrong") == dt.datetime.fromisoformat(at).astimezone().timestamp() * 1000
    for wrong in ("25:00", "07", "0709", "7.09"):
        with pytest.raises(CliError, match="wrong"):
            moment_ms(wrong, now, "wrong")


def test_why_asks_once(sidecar: Sidecar) -> None:
    """The answer itself says that a topic is not there."""
    assert sidecar.run("why", "persistent://shop/orders/a").exit_code == 0
    assert [name for name, _ in sidecar.service.calls] == ["why"]


def without_sidecar(command: str) -> Result:
    """What a command answers where none runs."""
    reason = [] if command.split(maxsplit=1)[0] in ("plan", "bundles", "where", "why", "channel") else ["--reason", "x"]
    return CliRunner().invoke(make_app(FakeWiring), [*shlex.split(command), *reason, "--socket", "/nonexistent.sock"])


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("transfer shop/orders/0x00000000_0x40000000 --to ''", "--to is empty (is a shell variable not set?)"),
        ("bundles --broker ''", "--broker is empty"),
        ("thresholds adopt --digest ''", "--digest is empty"),
        ("plan --remove-broker b:8080 --remove-broker ''", "--remove-broker is empty"),
        ("uncordon ''", "broker is empty (is a shell variable not set?); see `bundlekeel uncordon -h`"),
        ("where ''", "name is empty"),
        ("stop ''", "task is empty"),
    ],
)
def test_an_empty_text_is_named_and_refused(command: str, says: str) -> None:
    """A variable of a shell that is not set: the path would be another, or the whole list be meant."""
    told = without_sidecar(command)
    assert told.exit_code == 2 and told.stderr.startswith(f"error: {says}")


def test_an_option_without_a_value_by_default_may_be_empty(sidecar: Sidecar) -> None:
    """`--by "$USER"` in a job without a login, and `--after` of the first page."""
    assert sidecar.run("pause", "--reason", "r", "--by", "").exit_code == 0
    assert sidecar.run("channel", "--after", "", "-o", "json").stderr == ""


@pytest.mark.parametrize("command", ["drain b:80", "warm b:80", "unload a/b/0x0_0x1", "plan execute HASH --reason x"])
def test_a_limit_of_waiting_needs_somebody_who_waits(command: str) -> None:
    """It looked as if the command would wait so long."""
    told = without_sidecar(f"{command} --within 1h")
    assert told.exit_code == 2
    assert told.stderr == "error: --within '1h' has no effect without --wait: add --wait, or omit --within\n"


@pytest.mark.parametrize(
    "command",
    ["drain b:80", "warm b:80", "unload shop/orders", "transfer a/b/0x0_0x1 --to b:80", "split shop/orders/LARGEST"],
)
def test_nothing_is_waited_for_in_a_dry_run(command: str) -> None:
    """It ended with exit code 0 as if the broker were empty, and a script restarted it."""
    told = without_sidecar(f"{command} --wait --reason upgrade")
    assert told.exit_code == 2
    assert told.stderr == "error: --wait has no effect without --yes: add --yes, or omit --wait\n"


@pytest.mark.parametrize("command", ["pin", "unpin", "split", "transfer --to b:8080"])
def test_a_namespace_is_refused_where_a_bundle_belongs(command: str) -> None:
    """As the sidecar does."""
    told = without_sidecar(f"{command} shop/orders")
    assert told.exit_code == 1 and "'shop/orders' is a namespace; pass one of its bundles" in told.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("config init new.yaml --cluster c --metadata-store foo", "--metadata-store 'foo': not an address"),
        (
            "config init new.yaml --cluster c --metadata-store zk:h:2181 --nic-gbps fast",
            "--nic-gbps 'fast': not allowed (allowed: number, more than 0, or 0)",
        ),
        ("simulate 03-step -s averages", "--strategy: 'averages' is not one of avg"),
        ("simulate 03-step --pair averages", "--pair: 'averages' is not one of"),
    ],
)
def test_a_value_is_named_by_its_option(
    command: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not by the setting or field that it becomes."""
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(make_app(FakeWiring), command.split())
    assert told.exit_code == 2 and told.stderr.startswith(f"error: {says}")
    assert not list(tmp_path.iterdir())
