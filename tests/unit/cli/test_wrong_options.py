"""What commands say of options that name something wrong: the option as it was typed, what is allowed, the way out."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from bundlekeel.cli.app import make_app
from bundlekeel.core.model.errors import ConfigError, NotFound
from tests.support.fake_wiring import FakeWiring
from tests.unit.cli.test_commands import Sidecar, served, sidecar

__all__ = ["served", "sidecar"]


def test_a_wrong_parameter_is_named_with_its_option(sidecar: Sidecar) -> None:
    """Of several `--set` its value alone would not say which."""
    wrong = ConfigError("unknown parameter", field=r"parameters.fo\o", value="1", allowed="a name")
    sidecar.service.fail["make_plan"] = wrong
    told = sidecar.run("plan", "--set", r"fo\o=1", "--set", "bar=1")
    assert told.exit_code == 2 and r"--set fo\o = '1': unknown parameter (allowed: a name)" in told.stderr


def test_an_https_address_of_a_sidecar_without_tls_is_told_the_other_one(sidecar: Sidecar) -> None:
    """Advice to start a sidecar would not help: one answers there."""
    told = sidecar.run("status", "--url", sidecar.url.replace("http", "https"), to="none")
    assert told.exit_code == 3 and f"without TLS; is it {sidecar.url}?" in told.stderr
    assert "SSL" not in told.stderr and "start one" not in told.stderr


def test_a_broker_or_namespace_that_is_not_there_is_no_empty_channel(sidecar: Sidecar) -> None:
    """As with `bundles`; brokers that are gone are named while bundles are still theirs."""
    sidecar.service.fail["bundles"] = NotFound("no broker 'x'; nearest: broker-0.pulsar:8080")
    told = sidecar.run("channel", "--broker", "x")
    assert told.exit_code == 1 and "no broker 'x'; nearest:" in told.stderr and told.stdout == ""
    assert "no namespace" not in sidecar.run("channel", "--namespace", "shop/orders").stderr
    assert "shop/nowhere does not exist" in sidecar.run("channel", "--namespace", "shop/nowhere").stderr
    assert "--state = 'foo': must be" in sidecar.run("channel", "--state", "foo").stderr


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
        ("history display", "no such command 'display'; commands: ls, show, check, export; see"),
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
        ("drain --yes", "missing argument 'broker'; see `bundlekeel drain -h`"),
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
        ("--fast", "no such option: --fast; see `bundlekeel -h`"),
    ],
)
def test_wrong_usage_is_one_line(sidecar: Sidecar, command: str, says: str) -> None:
    """As every other error, with the help that shows what is right; no frame, whose lines no search finds."""
    told = sidecar.run(*command.split(), to="none", env={"COLUMNS": "80"})
    assert (told.exit_code, told.stderr, told.stdout) == (2, f"error: {says}\n", "")


def test_a_command_alone_that_needs_another_prints_its_help(sidecar: Sidecar) -> None:
    """No error without a text in front of it."""
    told = sidecar.run("config", to="none")
    assert told.exit_code == 2 and "Usage: bundlekeel config" in told.output and "error" not in told.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("pause --scope shop", "'shop' is not a valid pause scope (allowed: tenant:NAME, "),
        ("exclude shop", "'shop' is not a pattern of a scope (allowed: t:TENANT, "),
        ("quota set g --member demo --limit publish_bytes=10MB", "'demo'"),
        ("quota set g --member t:demo --limit publish_bytes=-1", "quotas.groups.g.publish_bytes"),
        ("plan --scale -1", "--scale -1: not allowed (allowed: more than 0 and at most 1000)"),
    ],
)
def test_a_value_is_checked_before_a_sidecar_is_asked(command: str, says: str) -> None:
    """Nobody has to start one to learn what is wrong with it."""
    reason = [] if command.startswith("plan") else ["--reason", "x"]
    told = CliRunner().invoke(make_app(FakeWiring), [*command.split(), *reason, "--socket", "/nonexistent.sock"])
    assert told.exit_code == 2 and says in told.stderr
    assert "(allowed: " in told.stderr and "no sidecar" not in told.stderr
