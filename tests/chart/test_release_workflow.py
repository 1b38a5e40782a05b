"""The workflow that publishes a release is accepted by its linter."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundlekeel import __version__
from dev.chart import CHART, ROOT
from dev.gotools import ACTIONLINT, ensure

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
CHART_DIGEST = f"sha256:{'c' * 64}"
# Helm says on stderr what it pushed.
PUSHED = f'exec 3>&1; helm() {{ echo helm "$@" >&3; echo "Digest: {CHART_DIGEST}" >&2; }}; '
PACKAGED = ("values.yaml", "README.md", "values-apache-chart.yaml")


def _jobs(path: Path = WORKFLOW) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return jobs


def _before(name: str) -> set[str]:
    """The jobs that must have passed before that one begins."""
    needs = _jobs()[name].get("needs", [])
    named = {needs} if isinstance(needs, str) else set(needs)
    return named.union(*(_before(other) for other in named))


def _run_script(script: str, folder: Path, **variables: str) -> list[str]:
    """A step as the runner's shell runs it, with programs that print what they are asked in the place of the real."""
    programs = "".join(f'{name}() {{ echo {name} "$@"; }}; ' for name in ("docker", "gh", "helm"))
    command = ["bash", "-e", "-c", f"{programs} jq() {{ echo sha256:1; }}\n{script}"]
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return result.stdout.splitlines()


@pytest.mark.parametrize("path", sorted(WORKFLOW.parent.iterdir()), ids=lambda path: path.stem)
def test_a_workflow_has_no_mistake_that_can_be_seen(path: Path) -> None:
    """Expressions, needs, permissions and keys; actions are pinned, or workflows of this repository."""
    uses = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    pattern = r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yml"
    assert uses and all(re.fullmatch(pattern, line) for line in uses)
    answer = subprocess.run([str(ensure(ACTIONLINT)), str(path)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_notes_and_assets_are_made(tmp_path: Path) -> None:
    """The step itself, as the runner's shell runs it: the published alerts link to the published site, and nothing that
    they or an installation rest on is missing."""
    (step,) = [step["run"] for step in _jobs()["check"]["steps"] if step.get("id") == "version"]
    for name in ("deploy", "dev", "requirements"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    variables = {
        **os.environ,
        "REGISTRY": "r",
        "TAG": f"v{__version__}",
        "GITHUB_OUTPUT": str(tmp_path / "out"),
    }
    result = subprocess.run(
        ["bash", "-e"], input=step, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    home = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["home"]
    output = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert output == [f"version={__version__}", f"runbooks={home}operations/runbooks/{{alert}}.html"]
    assets = tmp_path / "assets"
    links = re.findall(r"runbook_url: (.*)", (assets / "alerts.yml").read_text(encoding="utf-8"))
    assert links and all(link.startswith(f"{home}operations/runbooks/Bundlekeel") for link in links)
    assert (tmp_path / "notes.md").read_text(encoding="utf-8").strip()
    locks = [ROOT / "requirements" / f"{name}.lock" for name in ("runtime", "otel", "spark")]
    for source in (ROOT / "deploy/prometheus/recording.yml", *locks):
        assert (assets / source.name).read_bytes() == source.read_bytes()
    with tarfile.open(assets / f"bundlekeel-{__version__}-deploy.tar.gz") as archive:
        packed = {member.name for member in archive if member.isfile()}
        overview = archive.extractfile("dashboards/bundlekeel-overview.json")
        assert overview is not None
        text = overview.read().decode()
    assert f"{home}operations/runbooks" in text and "localhost:8000" not in text
    files = (path for name in ("dashboards", "systemd") for path in (ROOT / "deploy" / name).iterdir())
    assert packed == {path.relative_to(ROOT / "deploy").as_posix() for path in files}


def test_the_packaged_chart_names_published_images_and_pages(tmp_path: Path) -> None:
    """The values and the package's pages contain them; the sources contain neither."""
    shutil.copytree(CHART, tmp_path / "deploy/helm/bundlekeel")
    (script,) = [step["run"] for step in _jobs()["chart"]["steps"] if "run" in step]
    home = "https://keel.test/"
    _run_script(script, tmp_path, REGISTRY="r.test/p", RUNBOOKS=f"{home}operations/runbooks/{{alert}}.html")
    texts = {name: (tmp_path / "deploy/helm/bundlekeel" / name).read_text(encoding="utf-8") for name in PACKAGED}
    values = yaml.safe_load(texts["values.yaml"])
    assert values["image"]["repository"] == "r.test/p/bundlekeel"
    assert values["monitoring"]["prometheusRule"]["runbookUrl"] == f"{home}operations/runbooks/{{alert}}.html"
    default = f"| monitoring.prometheusRule.runbookUrl | string | `{home}operations/runbooks/{{alert}}.html` |"
    assert default in texts["README.md"]
    assert yaml.safe_load(texts["values-apache-chart.yaml"])["broker"]["initContainers"][0]["image"].startswith(
        "r.test/p/"
    )
    for name in ("bundlekeel", "bundlekeel-spark"):
        assert f"| `r.test/p/{name}` |" in texts["README.md"]
    linked = re.findall(r"\]\((\S+?)(?:#[\w-]+)?\)", texts["README.md"])
    assert linked and all(link.startswith(home) and link.endswith(".html") for link in linked)
    for link in linked:
        assert (ROOT / "docs" / link.removeprefix(home).replace(".html", ".md")).is_file()


def test_images_are_for_both_architectures() -> None:
    """And attested, as every file of the release is."""
    steps = _jobs()["image"]["steps"]
    (build,) = [step["run"] for step in steps if "push=true" in step.get("run", "")]
    assert "--platform linux/amd64,linux/arm64 " in build
    assert [step["with"]["push-to-registry"] for step in steps if "attest" in step.get("uses", "")] == [True]
    *_, attested, publish, _, _, _ = _jobs()["release"]["steps"]
    assert attested["with"]["subject-path"] == "dist/*" and " dist/*\n" in publish["run"]


@pytest.mark.parametrize(("workflow", "everything"), [("check", ".ci/run"), ("release", "make test")])
def test_kubernetes_is_built_before_everything_is_tested(workflow: str, everything: str) -> None:
    """Otherwise `make test` leaves its suite out without an error. No condition skips a step, and no failure of one is
    ignored.
    """
    job = _jobs(WORKFLOW.with_name(f"{workflow}.yml"))["test"]
    build = {"run": "make packages && .venv/bin/python -m dev.kubernetes build"}
    assert [step for step in job["steps"] if "run" in step] == [build, {"run": everything}]


def test_nothing_is_published_before_everything_passed() -> None:
    """The fast gate alone starts no cluster."""
    jobs = _jobs()
    # What an owner forgot ends the run in a minute, not after the gate.
    first, *steps = [step["run"] for step in jobs["check"]["steps"] if "run" in step]
    assert first == 'test -n "$REGISTRY"' and "dev.release check" in steps[steps.index("make check") - 1]
    first_ones = {"check", "test", "audit", "engine"}
    for name in jobs.keys() - first_ones:
        assert _before(name) >= first_ones, name
    assert _before("site") >= {"wheel", "image", "chart"}
    # Names that people install by.
    published = re.compile(r"imagetools create|helm push|gh release")
    assert [name for name, job in jobs.items() if published.search(str(job))] == ["release"]
    assert _before("release") == jobs.keys() - {"release"}


def _engine() -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load((WORKFLOW.parent / "engine.yml").read_text(encoding="utf-8"))
    return workflow


def test_engine_and_kubelet_run_for_each_commit_and_each_release() -> None:
    """Both use one workflow, and a command that fails before a pipe ends its step."""
    workflow = _engine()
    assert workflow["jobs"].keys() == {"compose", "kind"} and workflow["defaults"]["run"]["shell"] == "bash"
    for name in ("check", "release"):
        jobs = yaml.safe_load((WORKFLOW.parent / f"{name}.yml").read_text(encoding="utf-8"))["jobs"]
        assert jobs["engine"]["uses"] == "./.github/workflows/engine.yml", name
        assert "if" not in jobs["engine"], name


def test_the_cluster_of_kind_gets_the_image_of_the_compose_file(tmp_path: Path) -> None:
    """It is built as in the compose file, without an attestation, because containerd does not import one."""
    steps = _engine()["jobs"]["kind"]["steps"]
    (build,) = [step for step in steps if step.get("run") == "docker compose build sidecar-1"]
    assert build["env"] == {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    (load,) = [step["run"] for step in steps if "kind load" in step.get("run", "")]
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    image = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["sidecar-1"]["image"]
    assert _run_script(f'kind() {{ echo kind "$@"; }}; {load}', tmp_path) == [f"kind load docker-image {image}"]


@pytest.mark.parametrize(
    ("wrong", "passes"),
    [("", True), ("takeover", False), ("handback", False), ("admin", False), ("job", False), ("exec", False)],
)
@pytest.mark.parametrize("way", ["Job", "uninstall"])
def test_kind_sees_what_the_brokers_were_left_with(tmp_path: Path, way: str, wrong: str, passes: bool) -> None:
    """The programs are replaced by scripts that print the same. A step ends on a takeover without effect, a handback
    that leaves the override, a query that fails after either, and a command or Job that fails.
    """
    job = _engine()["jobs"]["kind"]
    (step,) = [step for step in job["steps"] if step.get("name") == f"A takeover, and back by the {way}"]
    programs = """
      back() { [ $WRONG = handback ] || : > set; }
      kubectl() { case "$*" in
        *takeover*)
          [ $WRONG = takeover ] || echo '  "loadBalancerSheddingEnabled" : "false"' > set
          [ $WRONG != exec ];;
        "create job"*) back;;
        "get job"*) if [ $WRONG = job ]; then echo Failed; else echo Complete; fi;;
        wait*) [ $WRONG != job ];;
      esac; }
      helm() { back; [ $WRONG != job ]; }
      docker() { cat set; [ $WRONG != admin ]; }
    """
    environment = {**os.environ, "OVERRIDES": job["env"]["OVERRIDES"], "WRONG": wrong or "nothing"}
    # As the runner calls the shell `bash`.
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", programs + step["run"]]
    (tmp_path / "set").touch()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == passes, done.stdout + done.stderr


def test_an_image_that_does_not_start_is_not_pushed(tmp_path: Path) -> None:
    """Each is started on both architectures before the step that pushes it, and says which release it is."""
    job = _jobs()["image"]
    runs = [step.get("run", "") for step in job["steps"]]
    (started,) = [place for place, run in enumerate(runs) if "docker run" in run]
    (pushed,) = [place for place, run in enumerate(runs) if "push=true" in run]
    assert started < pushed
    for item in job["strategy"]["matrix"]["include"]:
        script = runs[started].replace("${{ matrix.version }}", item["version"]).replace(" | grep", " # grep")
        requests = _run_script(script, tmp_path, TARGET=item["target"], VERSION=__version__)
        assert requests[1::2] == [
            f"docker run --rm --platform linux/{name} candidate {item['version']}" for name in ("amd64", "arm64")
        ]
        assert (
            requests[0]
            == f"docker buildx build --target {item['target']} --platform linux/amd64 --load --tag candidate ."
        )
    assert '| grep -F "$VERSION"' in runs[started]


def test_the_release_is_public_when_everything_is_there(tmp_path: Path) -> None:
    """First a draft with all files, then the images' tags and the chart, last the release. The tagged image is the one
    that was started and attested.
    """
    (tmp_path / "dist").mkdir()
    for name in ("bundlekeel", "bundlekeel-spark"):
        (tmp_path / "dist" / f"{name}.digest").write_text(f"sha256:{name}\n", encoding="utf-8")
    *_, publish, _, _, last = _jobs()["release"]["steps"]
    variables = {"REGISTRY": "r/p", "TAG": "v1.2.3", "VERSION": "1.2.3", "GITHUB_OUTPUT": str(tmp_path / "out")}
    draft, *tags, chart = _run_script(PUSHED + publish["run"], tmp_path, **variables)
    *_, public = _run_script(last["run"], tmp_path, **variables)
    assert draft.startswith("gh release create v1.2.3 --draft --verify-tag ")
    assert tags == [
        f"docker buildx imagetools create --tag r/p/{name}:1.2.3 r/p/{name}@sha256:{name}"
        for name in ("bundlekeel", "bundlekeel-spark")
    ]
    assert chart == "helm push dist/bundlekeel-1.2.3.tgz oci://r/p/charts"
    assert public == "gh release edit v1.2.3 --draft=false"
    # `gh` has no checkout here to read the repository from.
    assert "GH_REPO" in publish["env"] and "GH_REPO" in last["env"]


def test_the_chart_in_the_registry_is_attested(tmp_path: Path) -> None:
    """The digest is Helm's digest of the chart in the registry. It is also a file of the release, attested before the
    release is public. A push that fails, whatever digest its error contains, ends the step.
    """
    (tmp_path / "dist").mkdir()
    for name in ("bundlekeel", "bundlekeel-spark"):
        (tmp_path / "dist" / f"{name}.digest").write_text("sha256:1\n", encoding="utf-8")
    *_, publish, in_registry, as_file, last = _jobs()["release"]["steps"]
    variables = {"REGISTRY": "r/p", "TAG": "v1.2.3", "VERSION": "1.2.3", "GITHUB_OUTPUT": str(tmp_path / "out")}
    _run_script(PUSHED + publish["run"], tmp_path, **variables)
    assert (tmp_path / "bundlekeel-chart.digest").read_text(encoding="utf-8") == f"{CHART_DIGEST}\n"
    assert (tmp_path / "out").read_text(encoding="utf-8") == f"chart={CHART_DIGEST}\n"
    assert in_registry["with"] == {
        "subject-name": "${{ vars.REGISTRY }}/charts/bundlekeel",
        "subject-digest": "${{ steps.publish.outputs.chart }}",
        "push-to-registry": True,
    }
    assert as_file["with"] == {"subject-path": "bundlekeel-chart.digest"}
    assert _run_script(last["run"], tmp_path, **variables)[0] == "gh release upload v1.2.3 bundlekeel-chart.digest"
    assert publish["shell"] == "bash"  # so that the runner adds `pipefail`
    refused = f'helm() {{ echo "Error: PUT /blobs/{CHART_DIGEST}: 401" >&2; return 1; }}; set -o pipefail; '
    with pytest.raises(subprocess.CalledProcessError):
        _run_script(refused + publish["run"], tmp_path, **variables)


def test_a_rehearsal_publishes_nothing(tmp_path: Path) -> None:
    """A manual run executes every job. Steps that push, attest, deploy or create a release have a condition on the
    event.
    """
    publishing = re.compile(r"helm push|gh release|push=true|imagetools|deploy-pages@|attest-build")
    behind = "github.event_name == 'push'"
    steps = [step for job in _jobs().values() for step in job.get("steps", []) if publishing.search(str(step))]
    assert len(steps) == 8
    for step in steps:
        run = step.get("run", "")
        assert step.get("if") == behind or '"$GITHUB_EVENT_NAME"' in run, step
    assert all("if" not in job for job in _jobs().values())
    assert "--push" not in WORKFLOW.read_text(encoding="utf-8")
    (build,) = [step["run"] for step in steps if "push=true" in step.get("run", "")]
    for event, output in (
        ("push", "--output type=image,name=r/b,push=true,push-by-digest=true,name-canonical=true ."),
        ("workflow_dispatch", "--output type=oci,dest=image.tar ."),
    ):
        variables = {"GITHUB_EVENT_NAME": event, "IMAGE": "r/b", "NAME": "b", "GITHUB_OUTPUT": str(tmp_path / event)}
        assert _run_script(build, tmp_path, **variables)[0].endswith(output)
        assert (tmp_path / event).read_text(encoding="utf-8") == "digest=sha256:1\n"
        assert (tmp_path / "b.digest").read_text(encoding="utf-8") == "sha256:1\n"
        # Written in a release alone: what docker said of the image.
        assert (tmp_path / "b.sbom.json").exists() == (event == "push")
        (tmp_path / "b.sbom.json").unlink(missing_ok=True)


def test_what_is_pinned_is_audited() -> None:
    """Every lock, and each image that is released; regularly, as new vulnerabilities are found in old packages."""
    audit = yaml.safe_load((WORKFLOW.parent / "audit.yml").read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true.
    assert audit[True]["schedule"]
    jobs = audit["jobs"]
    assert any("for lock in requirements/*.lock" in step.get("run", "") for step in jobs["locks"]["steps"])
    released = {item["target"] for item in _jobs()["image"]["strategy"]["matrix"]["include"]}
    assert set(jobs["image"]["strategy"]["matrix"]["target"]) == released
    assert jobs["image"]["steps"][-1]["with"]["image"] == "audited"


def test_the_bot_for_updates_looks_where_something_is_pinned() -> None:
    """It says nothing of a folder without the file that it knows."""
    markers = {
        "github-actions": ".github/workflows/",
        "npm": "package-lock.json",
        "docker-compose": "docker-compose.yml",
    }
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    folders = {item["package-ecosystem"]: ROOT / item["directory"].strip("/") for item in updates}
    assert folders.keys() == markers.keys()
    assert all((folder / markers[name]).exists() for name, folder in folders.items())


def test_jobs_end_and_locks_are_heeded() -> None:
    """Each package that pip installs has its hash in a lock."""
    for path in WORKFLOW.parent.iterdir():
        text = path.read_text(encoding="utf-8")
        workflow = yaml.safe_load(text)
        # A called workflow is cancelled with its caller. Its own group would cancel it for another caller.
        assert ("concurrency" in workflow) == (workflow[True] != {"workflow_call": None})
        assert "concurrency" not in workflow or workflow["concurrency"]["group"]
        for job in workflow["jobs"].values():
            # The jobs of a workflow that is called have their own.
            assert "uses" in job or 0 < job["timeout-minutes"] <= 360
        assert all("--require-hashes" in line for line in text.splitlines() if "pip install" in line)
