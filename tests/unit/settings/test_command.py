"""`bundlekeel config`: check, show and parameters."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bundlekeel.cli.config import config_app
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import BY_NAME, Parameters
from bundlekeel.settings.describe import as_tree, describe
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from bundlekeel.settings.schema import by_key
from bundlekeel.wiring.outside import open_outside


class TestCommand:
    """`bundlekeel config`."""

    def invoke(self, *arguments: str) -> Any:
        """Run the sub-app."""
        return CliRunner().invoke(config_app, list(arguments))

    def test_problems_inside_lists_name_their_own_line_and_value(self, tmp_path: Path) -> None:
        """A list is one value of the settings; the line of its key would be that of all its items."""
        file = tmp_path / "keel.yaml"
        rest = "    - events: [stop]\n      url: http://127.0.0.1:1/\n      name: a\n"
        windows = "windows:\n  - cron: '* * * * *'\n    minutes: 10\n    allow: al\n"
        file.write_text(f"{windows}notify:\n  webhooks:\n{rest}strategy: null\n")
        told = self.invoke("check", str(file)).stderr.splitlines()
        assert [line.partition(f"file:{file}:")[2].partition(" (allowed")[0] for line in told] == [
            "4: windows.0.allow = 'al': not allowed",
            "7: notify.webhooks.0.events.0 = 'stop': not allowed; did you mean 'stops'?",
            "10: strategy: null is not allowed",
        ]

    @pytest.mark.parametrize(
        "api",
        ["tls: {cert_file: a.pem, key_file: a.pem}", "auth: {jwt_key_file: a.pem, jwt_issuer: i, jwt_audience: a}"],
    )
    def test_files_that_hold_no_key_are_refused(self, tmp_path: Path, api: str) -> None:
        """They are there, and the sidecar could not start with them."""
        (tmp_path / "a.pem").write_text("no key\n")
        file = tmp_path / "keel.yaml"
        file.write_text(f"cluster: c\nmetadata_store: zk:127.0.0.1:2181\napi: {{{api}}}\n")
        told = self.invoke("check", str(file))
        assert told.exit_code == 2 and "a.pem" in told.stderr and "error: " in told.stderr
        assert self.invoke("check", str(file), "--elsewhere").exit_code == 0

    def test_a_review_without_names_is_warned_of(self, tmp_path: Path) -> None:
        """Without authentication one person can propose under one name and approve under another."""
        file = tmp_path / "keel.yaml"
        for auth, warned in (("", True), ("api: {auth: {tokens_file: none}}\n", False)):
            file.write_text(f"cluster: c\nmetadata_store: zk:127.0.0.1:2181\nreview: required\n{auth}")
            told = self.invoke("check", str(file), "--elsewhere")
            assert told.exit_code == 0 and ("people name themselves" in told.stderr) == warned

    def test_values_that_contradict_each_other_are_warned_of(self, tmp_path: Path) -> None:
        """Each alone is allowed; together one of them is useless, or nothing moves."""
        file = tmp_path / "keel.yaml"
        limits = (
            "{max_moves_per_hour: 0, blast_stop_ratio: 0.2, excluded_namespaces: [a/b], included_namespaces: [a/b]}"
        )
        limits = limits.replace("}", ", cpu_weight: 0, bandwidth_in_weight: 0, bandwidth_out_weight: 0}")
        counters = "counters: {quick_interval: 10s, interval: 2s}"
        for mode, expected in (("act", 5), ("recommend", 4)):
            file.write_text(
                f"cluster: c\nmetadata_store: zk:127.0.0.1:2181\nmode: {mode}\n{counters}\nparameters: {limits}\n"
            )
            told = self.invoke("check", str(file))
            assert (told.exit_code, told.stdout, told.stderr.count("warning: ")) == (0, "ok\n", expected), told.stderr
        assert "blast_stop_ratio = 0.2: below blast_radius_ratio (0.5)" in told.stderr
        assert "a/b is excluded, too" in told.stderr and "'10s': longer than counters.interval" in told.stderr

    def test_check(self, tmp_path: Path) -> None:
        """0 and ok, or 2 and every problem on stderr."""
        file = tmp_path / "c.yaml"
        file.write_text("cluster: pulsar-1\nmode: act\nmetadata_store: zk:127.0.0.1:2181\n")
        good = self.invoke("check", str(file))
        assert (good.exit_code, good.stdout, good.stderr) == (0, "ok\n", "")
        misnamed = CliRunner(env={"BUNDLEKEEL_MODE": "act", "BUNDLEKEEL_CYCLE_INTERVAL": "1m", "BUNDLEKEEL_PORT": "1"})
        warned = misnamed.invoke(config_app, ["check", str(file)]).stderr
        assert (
            "warning: env:BUNDLEKEEL_MODE: not read; did you mean BUNDLEKEEL__MODE?" in warned
            and warned.count("\n") == 2
        )
        file.write_text("mode: x\nzzz: 1")
        bad = self.invoke("check", str(file))
        assert (bad.exit_code, bad.stdout, [line.split(" = ")[0] for line in bad.stderr.splitlines()]) == (
            2,
            "",
            [f"error: file:{file}:1: mode", f"error: file:{file}:2: zzz"],
        )
        assert bad.stderr.count("\n") == 2
        assert self.invoke("check", str(tmp_path / "none")).exit_code == 2

    def test_the_metadata_store_has_no_default(self, tmp_path: Path) -> None:
        """A cluster that nobody named is not guessed: `check` refuses as `run` does. The environment may name it."""
        file = tmp_path / "c.yaml"
        file.write_text("mode: act")
        bad = self.invoke("check", str(file))
        assert (bad.exit_code, bad.stdout) == (2, "")
        (found,) = json.loads(self.invoke("check", str(file), "-o", "json").stdout)["problems"]
        assert (found["field"], found["origin"]) == ("metadata_store", f"file:{file}")
        assert "c.yaml: metadata_store: it is missing (allowed: the brokers' metadataStoreUrl" in bad.stderr
        given = {"BUNDLEKEEL__METADATA_STORE": "zk:127.0.0.1:2181"}
        assert CliRunner(env=given).invoke(config_app, ["check", str(file)]).exit_code == 0
        file.write_text("metadata_store: null")
        assert "metadata_store: it is missing" in self.invoke("check", str(file)).stderr
        assert "required by `config check`" in by_key()["metadata_store"].why
        with pytest.raises(ConfigError, match="metadata_store: it is missing"):
            open_outside(load_settings(file, environ={}))

    def test_files_that_are_named_must_be_there(self, tmp_path: Path) -> None:
        """A token or CA file that is missing is found before the sidecar is; relative ones belong to the folder."""
        file = tmp_path / "c.yaml"
        admin = "admin: {token_file: token, tls_trust_certs_file: /none/ca.pem}"
        file.write_text(f"metadata_store: zk:127.0.0.1:2181\n{admin}\n")
        bad = self.invoke("check", str(file))
        assert (bad.exit_code, bad.stdout) == (2, "")
        assert f"admin.token_file = 'token': {tmp_path / 'token'} is not a readable file (allowed: " in bad.stderr
        assert bad.stderr.count(f"error: file:{file}:2: admin.") == 2
        assert "admin.tls_trust_certs_file = '/none/ca.pem'" in bad.stderr and "--elsewhere" in bad.stderr
        assert self.invoke("check", str(file), "--elsewhere").exit_code == 0
        (tmp_path / "token").write_text("x")
        assert "token_file" not in self.invoke("check", str(file)).stderr
        file.write_text("metadata_store: zk:127.0.0.1:2181\nadmin: {token_file: ''}\n")
        assert "admin.token_file = '': an empty text names no file (" in self.invoke("check", str(file)).stderr

    def test_secrets_that_are_on_another_host_are_not_asked_for(self, tmp_path: Path) -> None:
        """`--elsewhere`: a file whose password is in a folder of secrets there is right without it. What else is wrong
        is still found."""
        file = tmp_path / "c.yaml"
        file.write_text("metadata_store: zk:127.0.0.1:2181\nstore: {sasl_username: keel}\n")
        bad = self.invoke("check", str(file))
        assert bad.exit_code == 2 and "store.sasl_password: sasl_username and sasl_password go together" in bad.stderr
        there = CliRunner(env={"BUNDLEKEEL_SECRETS_DIR": str(tmp_path / "none")})
        for runner in (CliRunner(), there):
            good = runner.invoke(config_app, ["check", str(file), "--elsewhere"])
            assert (good.exit_code, good.stdout) == (0, "ok\n"), good.stderr
        assert "cannot be read" in there.invoke(config_app, ["check", str(file)]).stderr
        for store in ("{sasl_password: x}", "{sasl_username: keel, tls_cert_file: c.pem, tls: true}"):
            file.write_text(f"metadata_store: zk:127.0.0.1:2181\nstore: {store}\n")
            wrong = self.invoke("check", str(file), "--elsewhere")
            assert wrong.exit_code == 2 and "go together" in wrong.stderr

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("store: {root: keel}", "store.root = 'keel': not allowed (allowed: /bundlekeel/ and a name of letters"),
            ("cycle: [avg]", "cycle = ['avg']: this is a section: give its keys (allowed: interval)"),
            ("strategy: AvgShedder", "; Pulsar's class of that name is 'avg' here (allowed: avg, threshold, "),
            ("parameters: {loadBalancerSheddingGracePeriodMinutes: a}", "(allowed: a number of minutes)"),
        ],
    )
    def test_what_is_allowed_is_told_as_a_rule(self, tmp_path: Path, text: str, said: str) -> None:
        """What was given is of the kind that a bare `text` or `strategies` would name."""
        file = tmp_path / "c.yaml"
        file.write_text(f"cluster: c\nmetadata_store: zk:127.0.0.1:2181\n{text}\n")
        assert said in self.invoke("check", str(file)).stderr

    def test_a_file_of_api_tokens_is_read(self, tmp_path: Path) -> None:
        """A file that holds something else is found before the sidecar refuses to start; the line is not shown."""
        file = tmp_path / "c.yaml"
        file.write_text("cluster: c\nmetadata_store: zk:127.0.0.1:2181\napi: {auth: {tokens_file: tokens}}\n")
        (tmp_path / "tokens").write_text("# tokens\nroot:x:0:0:secret\n")
        bad = self.invoke("check", str(file))
        assert bad.exit_code == 2 and "secret" not in bad.stderr
        assert f"{tmp_path / 'tokens'}: line 2 is not the line of a token (allowed: name, role, hash" in bad.stderr
        assert self.invoke("check", str(file), "--elsewhere").exit_code == 0

    def test_problems_are_in_the_order_of_the_file(self, tmp_path: Path) -> None:
        """Whichever rule finds them; what stands in no line comes last."""
        file = tmp_path / "c.yaml"
        file.write_text(
            "metadata_store: zk:127.0.0.1:2181\nparameters: {cpu_wait: 1}\nzzz: 1\ncycle: {interval: soon}\n"
            "api: {port: x}\nmode: al\nwindows: [{minutes: 5}]\ncounters: {source: prometheus}\nprometheus:\n"
            "  urk: x\n  interval: never\n"
        )
        bad = CliRunner(env={"BUNDLEKEEL__JOURNAL__KEEP": "x"}).invoke(config_app, ["check", str(file)])
        told = [line.split(": ")[1].removeprefix(f"file:{file}:") for line in bad.stderr.splitlines()]
        assert told == ["2", "3", "4", "5", "6", "7", "10", "11", "env:BUNDLEKEEL__JOURNAL__KEEP"]
        file.write_text(
            "metadata_store: zk:127.0.0.1:2181\nadmin: {token_file: b}\nstore: {tls: true, tls_trust_certs_file: c}\n"
            "api: {auth: {tokens_file: a}}\n"
        )
        told = [line.split(": ")[1] for line in self.invoke("check", str(file)).stderr.splitlines() if "error" in line]
        assert told == [f"file:{file}:{line}" for line in (2, 3, 4)]

    def test_what_is_written_is_of_its_kind(self, tmp_path: Path) -> None:
        """A folder in the journal's place, a file in that of the socket: found before the start."""
        file = tmp_path / "c.yaml"
        places = "journal: {path: kept}\napi: {socket: c.yaml}\n"
        file.write_text(f"cluster: c\nmetadata_store: zk:127.0.0.1:2181\n{places}")
        (tmp_path / "kept").mkdir()
        bad = self.invoke("check", str(file))
        assert (bad.exit_code, bad.stdout) == (2, "")
        assert bad.stderr.splitlines() == [
            f"error: file:{file}:{line}: {key} = '{name}': {tmp_path / name} is there already and is not {kind} "
            f"(allowed: a path that is free, or {kind})"
            for line, key, name, kind in (
                (3, "journal.path", "kept", "a file"),
                (4, "api.socket", "c.yaml", "a socket"),
            )
        ]
        assert self.invoke("check", str(file), "--elsewhere").exit_code == 0

    def test_folders_that_are_missing_are_warned_of(self, tmp_path: Path) -> None:
        """A misprint in a path would else become a new folder; the sidecar does make it where it may."""
        file = tmp_path / "c.yaml"
        file.write_text("cluster: c\nmetadata_store: zk:127.0.0.1:2181\njournal: {path: nowhere/j.jsonl}\n")
        warned = self.invoke("check", str(file))
        assert (warned.exit_code, warned.stdout) == (0, "ok\n")
        said = f"warning: journal.path = 'nowhere/j.jsonl': the folder {tmp_path / 'nowhere'} does not exist"
        assert warned.stderr.startswith(said) and warned.stderr.count("\n") == 1

    def test_a_sidecar_that_nobody_can_change_is_warned_of(self, tmp_path: Path) -> None:
        """Without the socket, and without credentials over TCP, nobody can pause it."""
        file = tmp_path / "c.yaml"
        closed = "cluster: c\nmetadata_store: zk:127.0.0.1:2181\napi: {socket: null"
        file.write_text(f"{closed}}}\n")
        warned = self.invoke("check", str(file))
        assert (warned.exit_code, warned.stdout) == (0, "ok\n")
        assert warned.stderr == (
            "warning: api.socket: null, and api.auth is not set, so no route changes anything: nobody can pause, set "
            "the mode or drain (better: a path, or a file of tokens in api.auth.tokens_file)\n"
        )
        file.write_text(f"{closed}, auth: {{tokens_file: t, peer_token_file: p}}}}\n")
        assert self.invoke("check", str(file), "--elsewhere").stderr == ""

    def test_names_that_no_broker_has_are_warned_of(self, tmp_path: Path) -> None:
        """They match nothing without a word, and never did: a warning, so that no sidecar fails to start after an
        upgrade."""
        file = tmp_path / "c.yaml"
        file.write_text(
            "cluster: c\nmetadata_store: zk:127.0.0.1:2181\nparameters: {excluded_brokers: [b-1, 'b-1:1', b-*]}\n"
            "capacity: {b-2: {cores: 4}, 'b-2:1': {cores: 4}, 'b-?': {cores: 4}, /b.2/: {cores: 4}}\n"
        )
        warned = self.invoke("check", str(file))
        assert (warned.exit_code, warned.stdout) == (0, "ok\n")
        assert warned.stderr.splitlines() == [
            f"warning: {key} = '{name}': matches no broker: their ids are host:port "
            f"(better: {name}:8080, or {name}:* for every port)"
            for key, name in (("parameters.excluded_brokers", "b-1"), ("capacity", "b-2"))
        ]

    @pytest.mark.parametrize(
        ("windows", "warned"),
        [
            ("[]", False),
            ('[{cron: "0 9 * * 1-5", minutes: 480}]', True),
            ('[{cron: "0 9 * * 1-5", minutes: 480}, {cron: "0 2 * * *", minutes: 60, allow: overload}]', True),
            ('[{cron: "0 9 * * 1-5", minutes: 480}, {cron: "*  * * * *", minutes: 1, allow: overload}]', False),
            ('[{cron: "* * * * *", minutes: 1}]', False),
            ('[{cron: "0 0 24 12 *", minutes: 4320, allow: nothing}]', False),
        ],
    )
    def test_windows_that_leave_overload_alone_are_warned_of(self, tmp_path: Path, windows: str, warned: bool) -> None:
        """After a takeover nobody relieves an overloaded broker outside of them. With freezes alone everything is
        allowed outside of those."""
        file = tmp_path / "c.yaml"
        file.write_text(f"cluster: c\nmetadata_store: zk:127.0.0.1:2181\nwindows: {windows}\n")
        told = self.invoke("check", str(file))
        assert (told.exit_code, told.stdout) == (0, "ok\n")
        text = (
            "warning: windows: outside of them nothing relieves an overloaded broker, once the shedding is taken over "
            '(better: add {cron: "* * * * *", minutes: 1, allow: overload})\n'
        )
        assert told.stderr == (text if warned else "")

    @pytest.mark.parametrize("command", [["config", "check"], ["doctor", "-c"]])
    def test_a_missing_store_is_told_with_the_file(self, tmp_path: Path, command: list[str]) -> None:
        """The example as it is copied lacks it; the option for a file is no answer to who gave one."""
        file = tmp_path / "bundlekeel.yaml"
        file.write_text("cluster: c\n")
        told = subprocess.run(
            [sys.executable, "-m", "bundlekeel", *command, str(file)], capture_output=True, text=True, check=False
        )
        assert told.returncode == 2 and f"error: file:{file}: metadata_store: it is missing" in told.stderr
        assert "-c FILE" not in told.stderr

    def test_init_writes_what_is_given(self, tmp_path: Path) -> None:
        """The minimal settings file in `config/` is what it writes of the two required options, and passes `check`. It
        asks nothing then, and overwrites nothing; every value is checked before anything is written."""
        file = tmp_path / "made.yaml"
        least = ["init", "--cluster", "pulsar-1", "--metadata-store", "zk:zk-1:2181,zk-2:2181,zk-3:2181/pulsar"]
        made = self.invoke(*least, "--file", str(file))
        assert made.exit_code == 0 and made.stdout == f"{file} was written; next: bundlekeel doctor -c {file}\n"
        minimal = Path(__file__).parents[3] / "config/bundlekeel.minimal.yaml"
        assert file.read_text() == minimal.read_text()
        checked = self.invoke("check", str(minimal))
        assert (checked.exit_code, checked.stdout, checked.stderr) == (0, "ok\n", "")
        again = self.invoke(*least, "--file", str(file))
        assert again.exit_code == 2 and "exists already; choose another name with --file" in again.stderr
        named = self.invoke(*least, str(tmp_path / "named"))  # as `config check FILE`
        assert named.exit_code == 0 and (tmp_path / "named").read_text() == minimal.read_text()
        both = self.invoke(*least, str(tmp_path / "one"), "--file", str(file))
        assert both.exit_code == 2 and "pass only one of them" in both.stderr
        (tmp_path / "token").write_text("x")
        more = ["--token-file", "token", "--nic-gbps", "10", "--api-host", "0.0.0.0", "--file", str(tmp_path / "all")]
        assert self.invoke(*least, *more).exit_code == 0
        settings = load_settings(tmp_path / "all", environ={}).settings
        assert (settings.admin.token_file, settings.api.host) == (Path("token"), "0.0.0.0")
        assert settings.capacity["*"].nic_gbps == 10
        assert self.invoke("check", str(tmp_path / "all"), "--elsewhere").exit_code == 0

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "--cluster and --metadata-store are required"),
            (["--cluster", "a b", "--metadata-store", "zk:a:1"], "--cluster 'a b'"),
            (["--cluster", "a", "--metadata-store", "foo"], "--metadata-store 'foo'"),
            (["--cluster", "a", "--metadata-store", "zk:a:1", "--nic-gbps", "ten"], "--nic-gbps 'ten'"),
            (["--cluster", "a", "--metadata-store", "zk:a:1", "--api-host", "a b"], "--api-host 'a b'"),
            (["--cluster", "a", "--metadata-store", "zk:a:1", "--token-file", "none.txt"], "--token-file 'none.txt'"),
        ],
    )
    def test_init_refuses_what_cannot_be(self, tmp_path: Path, arguments: list[str], said: str) -> None:
        """Also missing options where no terminal can be asked; nothing is written."""
        file = tmp_path / "made.yaml"
        refused = self.invoke("init", *arguments, "--file", str(file))
        assert refused.exit_code == 2 and said in refused.stderr and "cli:" not in refused.stderr
        assert not file.exists()

    def test_init_for_another_host(self, tmp_path: Path) -> None:
        """A token that is only there is not looked for here, as in `check`."""
        file = tmp_path / "made.yaml"
        given = ["--cluster", "a", "--metadata-store", "zk:a:1", "--token-file", "/none/token", "--file", str(file)]
        assert self.invoke("init", *given, "--elsewhere").exit_code == 0
        assert self.invoke("check", str(file), "--elsewhere").exit_code == 0

    @pytest.mark.parametrize(
        "text", ["", "counters: {source: prometheus}", "admin: {token_file: /none}", "mode: 5", "a: [", "zzz: 1", "[]"]
    )
    def test_every_problem_has_one_form(self, tmp_path: Path, text: str) -> None:
        """Where it was written, the key with its value, what is wrong; and what is allowed, if it is a key."""
        file = tmp_path / "c.yaml"
        file.write_text(text if text in ("", "[]") else f"cluster: c\nmetadata_store: zk:a:1\n{text}\n")
        told = re.sub(rf"file:{file}(:\d+)?: ", "", self.invoke("check", str(file)).stderr)
        form = r"(error|warning): [\w.]+( = .+?)?: .+ \((allowed|better): .+\)|error: (line \d+, column|holds) .+"
        assert told and all(re.fullmatch(form, line) for line in told.splitlines()), told

    def test_init_asks_again_after_a_value_that_is_refused(self, tmp_path: Path) -> None:
        """On a terminal, at once: not after the last question."""
        file = tmp_path / "made.yaml"
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "bundlekeel", "config", "init", "--file", str(file), "--cluster", "c"]
        with subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as asking:
            os.write(master, b"foo\nzk:a:1\n\nten\n10\n\n")
            said, _ = asking.communicate(timeout=60)
        os.close(slave)
        os.close(master)
        assert asking.returncode == 0 and said.count(b"not an address of a metadata store") == 1
        assert yaml.safe_load(file.read_text()) == {
            "cluster": "c",
            "mode": "recommend",
            "metadata_store": "zk:a:1",
            "capacity": {"*": {"nic_gbps": 10.0}},
        }

    def test_show_leaves_values_in_one_piece(self, tmp_path: Path) -> None:
        """At 80 columns too: an address that is cut cannot be copied."""
        file, store = tmp_path / "c.yaml", "zk:" + ",".join(f"zk-{n}.example.org:2181" for n in range(5))
        file.write_text(f"cluster: c\nmetadata_store: {store}\n")
        shown = CliRunner(env={"COLUMNS": "80"}).invoke(config_app, ["show", "-c", str(file), "--origin"]).stdout
        assert f"\nmetadata_store: {store}  # file:{file}:2\n" in shown
        assert "\nstrategy: avg  # default\n  loadBalancerLoadSheddingStrategy\n" in shown

    def test_show(self, tmp_path: Path) -> None:
        """A tree that is itself a settings file, or rows with origins; secrets hidden everywhere."""
        file = tmp_path / "c.yaml"
        file.write_text(
            "admin: {token: geheim}\ncapacity: {'b.c:1': {cores: 2}}\nparameters: {maxUnloadPercentage: 0.3}"
        )
        tree = yaml.safe_load(self.invoke("show", "-c", str(file), "-o", "yaml").stdout)
        assert tree == json.loads(self.invoke("show", "-c", str(file), "-o", "json").stdout)
        assert tree["capacity"] == {"b.c:1": {"cores": 2.0}}
        assert tree["admin"]["token"] == "**********"
        assert (tree["parameters"]["max_unload_ratio"], tree["cycle"]["interval"]) == (0.3, "10s")
        flat = json.loads(self.invoke("show", "-c", str(file), "--origin", "-o", "json").stdout)
        assert flat["parameters.max_unload_ratio"] == {
            "value": 0.3,
            "origin": f"file:{file}:3",
            "pulsar_keys": ["maxUnloadPercentage"],
        }
        table = self.invoke("show", "-c", str(file), "--origin").stdout
        assert "geheim" not in table
        assert "loadBalancerBandwithInResourceWeight" in table
        assert str(file) in table
        assert "origin" not in self.invoke("show").stdout.splitlines()[0]
        file.write_text("zzz: 1")
        assert self.invoke("show", "-c", str(file)).exit_code == 2

    def test_show_what_differs_from_the_defaults(self, tmp_path: Path) -> None:
        """`--changed`: these keys alone, values as a settings file has them."""
        file = tmp_path / "c.yaml"
        group = "{members: ['t:acme'], publish_messages: 5.0}"
        file.write_text(f"cluster: c\nmode: recommend\nquotas: {{groups: {{acme: {group}}}}}\n")
        shown = CliRunner(env={"COLUMNS": "80"}).invoke(config_app, ["show", "-c", str(file), "--changed"]).stdout
        keys = dict(line.split(": ", 1) for line in shown.splitlines())
        assert sorted(keys) == ["cluster", "quotas.groups"]
        assert yaml.safe_load(keys["quotas.groups"])["acme"]["members"] == ["t:acme"]
        tree = yaml.safe_load(self.invoke("show", "-c", str(file), "--changed", "-o", "yaml").stdout)
        assert tree["quotas"]["groups"] == yaml.safe_load(keys["quotas.groups"])

    def test_check_takes_the_file_as_other_commands_do(self, tmp_path: Path) -> None:
        """As an argument, with -c or from the environment; not two of them, and not none."""
        file = tmp_path / "c.yaml"
        file.write_text("mode: x")
        named = {"BUNDLEKEEL_CONFIG": str(file)}
        for arguments, env in (([str(file)], {}), (["-c", str(file)], {}), ([], named)):
            told = CliRunner(env=env).invoke(config_app, ["check", *arguments])
            assert told.exit_code == 2 and f"error: file:{file}:1: mode" in told.stderr
        assert "pass only one of them" in self.invoke("check", str(file), "-c", str(file)).stderr
        none = CliRunner(env={"BUNDLEKEEL_CONFIG": None}).invoke(config_app, ["check"])
        assert none.exit_code == 2 and "no settings file: pass" in none.stderr

    def test_what_is_shown_can_be_read_again(self) -> None:
        """The tree of the defaults is a valid file that means the same."""
        tree = as_tree(describe(LoadedSettings.defaults()))
        loaded = load_settings(None, tree, environ={})
        assert to_parameters(loaded.settings)[0] == Parameters()
        assert loaded.settings.model_dump(exclude={"parameters"}) == Settings().model_dump(exclude={"parameters"})

    def test_parameters(self) -> None:
        """Every row of the table, in each form."""
        listed = json.loads(self.invoke("parameters", "-o", "json").stdout)
        assert [row["name"] for row in listed] == list(BY_NAME)
        assert "loadBalancerAvgShedderLowThreshold" in self.invoke("parameters").stdout
        assert yaml.safe_load(self.invoke("parameters", "-o", "yaml").stdout) == listed
