"""A canary secret passes through settings, errors and logs and appears nowhere."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from typer.testing import CliRunner

from bundlekeel.model.errors import ConfigError
from bundlekeel.pulsar.topics.process import TopicsOptions
from bundlekeel.pulsar.topics.wire import Setup, decode_to_child, encode
from bundlekeel.pulsar.zookeeper.connection import StoreIdentity
from bundlekeel.settings.describe import describe, warnings_of
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.settings.schema import HIDDEN, rows
from bundlekeel.wiring.logs import Redactor, secrets_of
from bundlekeel.wiring.outside import open_outside
from bundlekeel.wiring.security import access_of, broker_tls, peers_of, server_tls, store_identity
from bundlekeel.wiring.sidecar import sidecar
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring
from tests.support.security import Certificates, Issuer, SteppedClock, Tokens

CANARY = "c4nary-9f2e-sw0rdf1sh"


def loaded_with(**overrides: Any) -> LoadedSettings:
    """Settings given on the command line's layer."""
    return load_settings(None, overrides, environ={})


SECRET_KEYS = {"admin.token": {}, "prometheus.token": {}, "store.sasl_password": {"store.sasl_username": "keel"}}


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_shown_settings_hide_it(key: str, tmp_path: Path) -> None:
    """`/settings`, `config show` and a dump of the tree."""
    options = {key: CANARY, **SECRET_KEYS[key]}
    loaded = loaded_with(**options)
    values = {row["key"]: row["value"] for row in describe(loaded)}
    assert values[key] == HIDDEN and CANARY not in str(values)
    for text in (repr(loaded), str(loaded.settings), loaded.settings.model_dump_json(), repr(loaded.settings)):
        assert CANARY not in text
    config = tmp_path / "config.yaml"
    tree: dict[str, Any] = {"metadata_store": "zk:127.0.0.1:2181"}
    for name, value in options.items():
        section, _, leaf = name.partition(".")
        tree.setdefault(section, {})[leaf] = value
    config.write_text(json.dumps(tree))
    for arguments in (["config", "show", "-c", str(config), "-o", "json"], ["config", "check", str(config)]):
        result = CliRunner().invoke(make_app(FakeWiring), arguments)
        assert result.exit_code == 0 and CANARY not in result.output


def test_every_setting_that_is_a_secret_is_one_by_type() -> None:
    words = ("password", "secret", "token", "credential", "passwd")
    suspicious = [row for row in rows() if any(word in row.key for word in words)]
    assert {row.key for row in suspicious if row.secret} == set(SECRET_KEYS)
    for row in suspicious:
        assert row.secret or row.key.endswith("_file"), row.key


@pytest.mark.parametrize(
    "wrong",
    [
        {"admin": {"token": [CANARY]}},
        {"admin": {"tokn": CANARY}},
        {"admin": CANARY},
        {"store": {"sasl_password": CANARY}},
        {"store": {"sasl_password": {"a": CANARY}, "sasl_username": "x"}},
        {"store": {"sasl_pasword": CANARY}},
        {"store": CANARY},
        {"api": {"auth": {"tokens": CANARY}}},
        {"api": {"auth": {"jwt_secret": CANARY}}},
        {"password": CANARY},
        {"admin": {"token": CANARY, "token_file": "x"}},
    ],
    ids=str,
)
def test_errors_about_settings_hide_it(wrong: dict[str, Any], tmp_path: Path) -> None:
    """A secret of the wrong type, under a misspelt key or in the wrong place is not quoted; neither on stderr."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(wrong))
    with pytest.raises(ConfigError) as error:
        load_settings(config, environ={})
    assert CANARY not in str(error.value) and CANARY not in repr(error.value)
    result = CliRunner().invoke(make_app(FakeWiring), ["config", "check", str(config)])
    assert result.exit_code == 2 and CANARY not in result.output


def test_environment_and_secret_files(tmp_path: Path) -> None:
    (tmp_path / "store__sasl_password").write_text(CANARY + "\n")
    environ = {"BUNDLEKEEL__ADMIN__TOKEN": CANARY, "BUNDLEKEEL__STORE__SASL_USERNAME": "keel"}
    loaded = load_settings(None, environ=environ, secrets_dir=tmp_path)
    assert set(secrets_of(loaded.settings)) == {CANARY}
    assert loaded.origins["store.sasl_password"].startswith("secret:")
    assert CANARY not in str(describe(loaded)) + str(loaded.origins)


def test_objects_made_of_secrets_do_not_show_them() -> None:
    loaded = loaded_with(**{"admin.token": CANARY, "store.sasl_username": "keel", "store.sasl_password": CANARY})
    identity = store_identity(loaded)
    assert identity.password == CANARY and CANARY not in repr(identity) + str(identity)
    options = TopicsOptions(token=CANARY)
    assert CANARY not in repr(options) + str(options)


def test_the_topics_child_gets_it_over_its_standard_input() -> None:
    """Token, certificate and key paths are in the first line of the pipe, and in nothing that others can read."""
    options = TopicsOptions(token=CANARY, cert=Path("a.crt"), key=Path("a.key"), trust_certs=Path("ca.pem"))
    line = encode(options.setup(["pulsar+ssl://b:1"]))
    setup = decode_to_child(line)
    assert isinstance(setup, Setup)
    assert (setup.token, setup.cert, setup.key, setup.trust_certs) == (CANARY, "a.crt", "a.key", "ca.pem")


# --- logs --------------------------------------------------------------------------------------------------

LEAKS = [
    ("known", CANARY),
    ("in a sentence", f"the broker said: bad token {CANARY}!"),
    ("bearer", "Authorization: Bearer abcdefghijklmnop.qrst"),
    ("jwt", "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl expired"),
    ("api token", "got bk.alice.AAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
]
GONE = (CANARY, "abcdefghijklmnop", "eyJzdWIiOiJhIn0", "AAAAAAAAAAAA")


@pytest.mark.parametrize(("_name", "text"), LEAKS)
def test_redacted_wherever_it_stands(_name: str, text: str) -> None:
    """In the event, in a field, nested, in an exception's text, as the value of a field with a telling name."""
    redact = Redactor((CANARY,))
    nested = {"headers": [text, {"deep": text}], "count": 3, "ok": True, "none": None}
    redacted = redact(None, "info", {"event": text, "error": text, "nested": nested, "exception": f"Trace\n{text}"})
    assert not any(word in str(redacted) for word in GONE)
    assert redacted["nested"]["count"] == 3 and redacted["nested"]["ok"] is True


def test_fields_with_a_telling_name_are_hidden() -> None:
    redactor = Redactor()(None, "info", {"event": "x", "token": "abc", "sasl_password": "q", "token_file": "/etc/t"})
    assert redactor == {"event": "x", "token": HIDDEN, "sasl_password": HIDDEN, "token_file": "/etc/t"}


def test_short_values_do_not_empty_the_log() -> None:
    assert Redactor(("ab", "")).text("about a table") == "about a table"


@pytest.mark.parametrize("secret", ['pa"ss\\word', "pä ss/w&rd", "it's\tone"])
def test_a_secret_in_another_form_is_still_one(secret: str) -> None:
    redact = Redactor((secret,)).text
    body = json.dumps({"k": secret})
    urls = [f"http://u:{quote(secret, safe='')}@h/", f"p={quote_plus(secret)}&x=1"]
    for text in (secret, repr({"k": secret}), body, json.dumps(body), json.dumps(secret, ensure_ascii=False), *urls):
        redacted = redact(text)
        assert redacted.count(HIDDEN) == 1 and secret[-2:] not in redacted, text


SCRIPT = """
import logging, sys, threading
import structlog
from bundlekeel.wiring.logs import configure_logging
from bundlekeel.settings.load import load_settings
settings = load_settings(None, {"logging.format": sys.argv[1], "logging.level": "debug"}).settings
configure_logging(settings)
canary = settings.admin.token.get_secret_value()
def deep(secret):
    raise RuntimeError(f"refused with {secret}")
try:
    deep(canary)
except RuntimeError:
    structlog.get_logger("a").exception("failed", url=f"http://u:{canary}@h/", nested={"x": [canary]})
    logging.getLogger("httpx").error("refused %s", canary, exc_info=True)
structlog.get_logger("a").info(f"event {canary}")
thread = threading.Thread(target=deep, args=(canary,))
thread.start()
thread.join()
class Closing:
    def __del__(self):
        deep(canary)
closing = Closing()
del closing
deep(canary)
"""


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_whole_process_does_not_tell(form: str) -> None:
    """Logs of ours and of libraries, tracebacks, and the last words of threads and of the process."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, form],
        env={"BUNDLEKEEL__ADMIN__TOKEN": CANARY, "PYTHONPATH": "service"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1 and ended.stderr.count("RuntimeError: refused with") == 5, ended.stderr
    assert ended.stderr.count(HIDDEN) >= 8 and CANARY not in ended.stderr + ended.stdout


def test_the_formatter_of_libraries() -> None:
    from bundlekeel.wiring.logs import _Formatter  # noqa: PLC0415 - private, and tried here only

    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Formatter(Redactor((CANARY,))))
    handler.emit(logging.LogRecord("kazoo", logging.ERROR, "f", 1, "auth %s", (CANARY,), None))
    assert stream.getvalue() == f"ERROR:kazoo:auth {HIDDEN}\n"


# --- wiring ------------------------------------------------------------------------------------------------


EVERYTHING = {
    "api": {
        "auth": {
            "tokens_file": "tokens",
            "jwt_key_file": "jwt.pem",
            "jwt_issuer": "https://issuer.example",
            "jwt_audience": "bundlekeel",
            "peer_token_file": "peer",
            "failures_per_minute": 3,
        },
        "tls": {"cert_file": "api.crt", "key_file": "api.key", "trust_certs_file": "ca.pem"},
    },
    "store": {
        "sasl_username": "keel",
        "sasl_password": CANARY,
        "tls": True,
        "tls_trust_certs_file": "ca.pem",
        "tls_cert_file": "api.crt",
        "tls_key_file": "api.key",
    },
    "admin": {"tls_cert_file": "api.crt", "tls_key_file": "api.key", "tls_trust_certs_file": "ca.pem"},
}


async def test_settings_become_what_they_say(tmp_path: Path) -> None:
    """Each setting of identity and TLS arrives where it works; relative files belong to the settings file."""
    ours, tokens, issuer = Certificates(tmp_path), Tokens(tmp_path), Issuer(tmp_path)
    ours.issue("api")
    (tmp_path / "peer").write_text(tokens.tokens["viewer"])
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(EVERYTHING))
    loaded = load_settings(config, environ={})
    access = access_of(loaded, object(), SteppedClock())  # type: ignore[arg-type]
    assert access is not None and access.failures_per_minute == 3
    assert (access.credentials.check(tokens.tokens["admin"]) or object()).role == "admin"  # type: ignore[attr-defined]
    assert (access.credentials.recall(issuer.jwt("operator")) or object()).role == "operator"  # type: ignore[attr-defined]
    assert server_tls(loaded) is not None
    identity = store_identity(loaded)
    assert (identity.username, identity.password, identity.owned) == ("keel", CANARY, True)
    assert identity.tls is not None and identity.tls.cert == tmp_path / "api.crt"
    assert broker_tls(loaded).key == tmp_path / "api.key"
    await peers_of(loaded).close()
    nothing = LoadedSettings.defaults()
    assert access_of(nothing, object(), SteppedClock()) is None and server_tls(nothing) is None  # type: ignore[arg-type]
    assert store_identity(nothing) == StoreIdentity()
    await peers_of(nothing).close()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"api.auth.jwt_key_file": "k"}, "api.auth.jwt_issuer"),
        ({"api.auth.jwt_key_file": "k", "api.auth.jwt_issuer": "i"}, "api.auth.jwt_audience"),
        ({"api.auth.anonymous_reads": True}, "api.auth.anonymous_reads"),
        ({"api.tls.cert_file": "c"}, "api.tls.key_file"),
        ({"api.tls.key_file": "c"}, "api.tls.cert_file"),
        ({"api.tls.client_ca_file": "c"}, "api.tls.client_ca_file"),
        ({"store.sasl_username": "u"}, "store.sasl_password"),
        ({"store.sasl_password": "p"}, "store.sasl_username"),
        ({"store.tls_trust_certs_file": "c"}, "store.tls_trust_certs_file"),
        ({"store.tls": True, "store.tls_cert_file": "c"}, "store.tls_key_file"),
        ({"store.acl": "creator"}, "store.acl"),
        ({"store.sasl_username": 'a"b', "store.sasl_password": "p"}, "store.sasl_username"),
        ({"admin.tls_cert_file": "c"}, "admin.tls_key_file"),
        ({"admin.tls_key_file": "c"}, "admin.tls_cert_file"),
    ],
)
def test_halves_and_contradictions_are_refused(options: dict[str, Any], field: str) -> None:
    """A setting that would have no effect, or less than it seems, stops the start and is named."""
    with pytest.raises(ConfigError) as error:
        loaded_with(**options)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("values", "owned"),
    [
        ({}, False),
        ({"store.sasl_username": "u", "store.sasl_password": "p"}, True),
        ({"store.sasl_username": "u", "store.sasl_password": "p", "store.acl": "open"}, False),
    ],
)
def test_nodes_belong_to_whoever_has_an_identity(values: dict[str, Any], owned: bool) -> None:
    """kazoo gets the ACL `creator: all` then, and SASL; and neither without."""
    options = store_identity(loaded_with(**values)).options()
    assert ("default_acl" in options) == owned
    assert ("sasl_options" in options) == bool(values)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, ""),
        ({"cluster": None}, "cluster = 'standalone'"),
        ({"cluster": "standalone"}, "cluster = 'standalone'"),
        ({"api.auth.tokens_file": "t", "api.auth.peer_token_file": "p"}, ""),
        ({"api.auth.tokens_file": "t", "api.auth.peer_token_file": "p", "api.host": "0.0.0.0"}, "unencrypted"),
        ({"api.auth.tokens_file": "t"}, "peer_token_file"),
        ({"api.auth.jwt_issuer": "i"}, "api.auth.jwt_issuer = 'i': has no effect without api.auth.jwt_key_file"),
        ({"api.auth.jwt_audience": "a"}, "api.auth.jwt_audience = 'a': has no effect without api.auth.jwt_key_file"),
        (
            {"api.auth.tokens_file": "t", "api.auth.peer_token_file": "p", "api.auth.jwt_issuer": "i"},
            "api.auth.jwt_issuer = 'i'",
        ),
        ({"api.auth.peer_token_file": "p"}, "api.auth.peer_token_file = 'p': "),
        ({"api.host": "0.0.0.0"}, "api.auth.tokens_file: not set, so everybody who reaches the port"),
        ({"admin.tls_verify": False}, "admin.tls_verify = false: "),
        ({"store.tls_verify": False}, "store.tls_verify"),
        ({"store.sasl_username": "u", "store.sasl_password": "p"}, "store.tls"),
    ],
)
def test_what_is_allowed_and_hardly_safe_is_warned_of(options: dict[str, Any], word: str) -> None:
    """`config check` says so; nothing is refused."""
    warnings = warnings_of(loaded_with(**{"cluster": "pulsar-1", **options}).settings)
    assert len(warnings) == (1 if word else 0) and word in "".join(warnings)


async def test_s18_a_command_opens_no_file_of_the_api(tmp_path: Path) -> None:
    """Jobs that ask brokers and ZooKeeper have neither the tokens nor the certificate of the API; a sidecar must."""
    config = tmp_path / "config.yaml"
    files = {"cert_file": "api.crt", "key_file": "api.key", "trust_certs_file": "ca.crt", "client_ca_file": "ca.crt"}
    auth = {"tokens_file": "tokens", "peer_token_file": "peer"}
    api = {"tls": files, "auth": auth}
    config.write_text(json.dumps({"cluster": "c", "metadata_store": "zk:localhost:2181", "api": api}))
    loaded = load_settings(config, environ={})
    out = open_outside(loaded)
    with pytest.raises(ConfigError, match=r"api\.tls"):
        sidecar(loaded, out)
