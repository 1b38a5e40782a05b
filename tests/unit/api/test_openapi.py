"""The OpenAPI document as who writes a client reads it: every field described, an example for each route that works."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

import bundlekeel
from bundlekeel.api.problems import KINDS, STATUSES, TYPE_PREFIX
from bundlekeel.leader.execution.intents import OutcomeWord
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CONFLICTS, FORBIDDEN, REASONS
from bundlekeel.requests.review import ACTIONS
from bundlekeel.settings.credentials import ROLES
from bundlekeel.settings.model import ApiSettings
from bundlekeel.wiring.openapi import openapi_document
from dev.api_page import answers_text, api_page, examples
from tests.support.apps import create_app
from tests.support.security import Tokens, access_for
from tests.support.shop import Shop


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of all routes."""
    return openapi_document()


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Method and path, and what the document says of each."""
    return [
        (f"{method.upper()} {path}", operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def test_every_integer_has_64_bits(document: dict[str, Any]) -> None:
    """Without a format, clients that are made from the document have 32 bits for it, and a time in ms has 41."""
    formats = list[str | None]()

    def look(item: dict[str, Any]) -> dict[str, Any]:
        formats.extend([item.get("format")] if item.get("type") == "integer" else [])
        return item

    json.loads(json.dumps(document), object_hook=look)
    assert len(formats) > 100 and set(formats) == {"int64"}


def test_every_field_and_parameter_is_described(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    fields = {
        f"{name}.{field}": item
        for name, schema in schemas.items()
        for field, item in schema.get("properties", {}).items()
    }
    parameters = {
        f"{name} {parameter['name']}": parameter
        for name, operation in operations(document)
        for parameter in operation.get("parameters", ())
    }
    assert len(fields) > 600
    assert [name for name, item in (schemas | fields | parameters).items() if not item.get("description")] == []


def test_a_document_says_what_it_lacks_and_who_may_change(document: dict[str, Any]) -> None:
    """The one of an address without changes says where they are; no route that changes something is for everybody."""
    reading = create_app(Shop().service, mutations=False).openapi()
    lacking = document["paths"].keys() - reading["paths"].keys()
    assert lacking and "no routes tagged `mutations`" in reading["info"]["description"]
    assert "no routes tagged" not in document["info"]["description"]
    writes = {name: item for name, item in operations(document) if "mutations" in item.get("tags", ())}
    assert len(writes) > 20 and [name for name, item in writes.items() if {} in item["security"]] == []
    used = {tag for _, item in operations(document) for tag in item.get("tags", ())}
    assert {item["name"] for item in document["tags"]} == used and all(item["description"] for item in document["tags"])
    assert document["servers"]


def test_no_description_is_a_word_that_could_stand_anywhere(document: dict[str, Any]) -> None:
    """ "how many" of what, "when" what happened: a reader of a generated client sees the field alone."""
    thin = {"how many", "when", "why", "why not", "its name", "by broker", "a ratio", "its number", "of the settings"}
    result = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, item in schema.get("properties", {}).items()
        if item["description"] in thin
    ]
    assert result == []


def test_an_operation_is_named_by_what_it_does(document: dict[str, Any]) -> None:
    """A verb and its object, none twice: generated clients name their methods so."""
    names = [operation["operationId"] for _, operation in operations(document)]
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name)] == []
    assert len(set(names)) == len(names)


def test_every_answer_has_an_example(document: dict[str, Any]) -> None:
    for output in (document, create_app(Shop().service, mutations=False).openapi()):
        examples = {
            name: [content.get("example") for status, answer in operation["responses"].items() if status[0] == "2"
                   for content in answer["content"].values()]
            for name, operation in operations(output)
        }  # fmt: skip
        assert [name for name, value in examples.items() if len(value) != 1 or value[0] is None] == []


def test_the_stream_is_described(document: dict[str, Any]) -> None:
    (answer,) = document["paths"]["/api/v1/events"]["get"]["responses"]["200"]["content"].items()
    kind, content = answer
    assert kind == "text/event-stream" and content["schema"] == {}
    events = content["x-itemSchema"]["properties"]
    assert events["event"]["enum"] == ["change", "end"]
    assert {"$ref": "#/components/schemas/Marks"} in events["data"]["contentSchema"]["anyOf"]
    output = content["example"].split("\n\n")
    assert [text.partition("\n")[0] for text in output] == ["event: change", ": still here", "event: end"]
    marks = json.loads(output[0].partition("data: ")[2])
    assert marks.keys() == document["components"]["schemas"]["Marks"]["properties"].keys()


def test_the_document_knows_every_kind_of_problem(document: dict[str, Any]) -> None:
    kinds = document["components"]["schemas"]["Problem"]["properties"]["type"]["x-extensible-enum"]
    assert kinds == [f"{TYPE_PREFIX}{kind}" for _, kind in KINDS] and len(kinds) > 20


def test_every_problem_of_a_route_has_an_example(document: dict[str, Any]) -> None:
    output = document["components"]["examples"]
    kinds = {kind: item["value"]["status"] for kind, item in output.items()}
    assert kinds == {kind: status for status, kind in KINDS}
    assert {item["value"]["type"] for item in output.values()} == {f"{TYPE_PREFIX}{kind}" for kind in kinds}
    assert all(item["value"]["request_id"] for item in output.values())
    assert output["conflict"]["value"]["code"] and output["invalid-value"]["value"]["errors"][0]["field"]
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get("application/problem+json")
            if content is not None:
                result = [item["$ref"].rpartition("/")[2] for item in content["examples"].values()]
                assert result and {kinds[kind] for kind in result} == {int(status)}, f"{name} {status}"


def test_every_refusal_of_the_api_has_a_code_that_the_document_knows(document: dict[str, Any]) -> None:
    expected_keys = document["components"]["schemas"]["Problem"]["properties"]["code"]["x-extensible-enum"]
    assert expected_keys == [*REASONS, *Code]
    # Tasks of the leader, and commands without the API.
    silent = {"executions.py", "leadership.py", "takeover.py", "uninstall.py"}
    written, lacking = {"Conflict": set[str](), "Forbidden": set[str]()}, list[str]()
    for file in Path(bundlekeel.__file__).parent.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            kind = call.func.id if isinstance(call.func, ast.Name) else ""
            if kind in written and file.name not in silent:
                codes = [word.value for word in call.keywords if word.arg == "code"]
                written[kind] |= {str(code.value) for code in codes if isinstance(code, ast.Constant)}
                reported = bool(codes) and (
                    kind == "Forbidden" or any(word.arg == "difference" for word in call.keywords)
                )
                lacking += [] if reported else [f"{file.name}:{call.lineno}"]
    assert written == {"Conflict": CONFLICTS.keys(), "Forbidden": FORBIDDEN.keys()} and lacking == []


def test_probes_name_their_parameter(document: dict[str, Any]) -> None:
    """`?verbose`."""
    for path in ("/livez", "/readyz"):
        (parameter,) = document["paths"][path]["get"]["parameters"]
        assert (parameter["name"], parameter["in"], parameter["required"]) == ("verbose", "query", False)


def test_a_summary_is_a_sentence_for_people(document: dict[str, Any]) -> None:
    """Not the name of a function, and none twice. The description does not repeat it."""
    summaries = {name: operation["summary"] for name, operation in operations(document)}
    described = [item for _, item in operations(document) if "description" in item]
    assert described and not [item for item in described if item["summary"] in item["description"]]
    assert [name for name, summary in summaries.items() if " " not in summary or len(summary) > 120] == []
    assert len(set(summaries.values())) == len(summaries)


def test_each_route_names_every_status_that_errors_have(document: dict[str, Any]) -> None:
    output = {name: set(item["responses"]) for name, item in operations(document) if "/api/v1/" in name}
    needed = {str(status) for _, status, _ in STATUSES} - {"404", "409"} | {"500"}
    assert output and {name: needed - value for name, value in output.items() if needed - value} == {}


def test_who_has_to_wait_is_told_how_long(document: dict[str, Any]) -> None:
    """Each 429 and 503 of the API declares the header that it has, once for all."""
    result = [
        answer.get("headers", {}).get("Retry-After")
        for name, operation in operations(document)
        for status, answer in operation["responses"].items()
        if "/api/v1/" in name and status in ("429", "503")
    ]
    assert result and all(header == {"$ref": "#/components/headers/RetryAfter"} for header in result)
    assert document["components"]["headers"]["RetryAfter"]["schema"]["type"] == "integer"


def test_what_takes_few_words_lists_them(document: dict[str, Any]) -> None:
    """Closed sets as `enum`, by which clients are generated; those that a later release may extend as such."""

    def words(name: str, key: str = "enum") -> set[str]:
        schema, _, field = name.partition(".")
        return set(document["components"]["schemas"][schema]["properties"][field][key])

    assert words("OutcomeView.outcome") == set(get_args(OutcomeWord))
    assert words("ReviewView.state") >= {*ACTIONS, "done", "aborted", "discarded", "expired"}
    assert words("WhoAmI.your_role") == set(ROLES)
    assert words("TaskView.state") and words("DrainView.state") and words("TaskView.kind")
    assert words("Verdict.code", "x-extensible-enum") == set(Code)
    (kind,) = [
        item["schema"]["anyOf"][0]["enum"]
        for item in document["paths"]["/api/v1/journal"]["get"]["parameters"]
        if item["name"] == "kind"
    ]
    assert words("OtherRecord.kind", "x-extensible-enum") == set(kind)


def test_the_document_says_what_answers_are_and_its_licence(document: dict[str, Any]) -> None:
    assert "Successful Response" not in json.dumps(document)
    schemas = document["components"]["schemas"]
    assert schemas["WhyView"]["properties"]["history"]["items"] == {"$ref": "#/components/schemas/JournalRecord"}
    assert schemas["OtherRecord"]["required"] == ["kind", "wall_ms", "sentence"]
    assert document["info"]["license"]["identifier"] == "Apache-2.0"


def test_each_kind_of_record_has_a_schema(document: dict[str, Any]) -> None:
    """A typed client has the fields of its kind; of one that it does not know what all have, and the rest."""
    schemas = document["components"]["schemas"]
    names = [item["$ref"].rpartition("/")[2] for item in schemas["JournalRecord"]["anyOf"]]
    assert names[-1] == "OtherRecord" and {schemas[name]["additionalProperties"] for name in names} == {True}
    kinds = [schemas[name]["properties"]["kind"]["const"] for name in names[:-1]]
    assert kinds == schemas["OtherRecord"]["properties"]["kind"]["x-extensible-enum"]
    assert {"intent", "error", "landed_ms", "hops"} <= set(schemas["MoveRecord"]["required"])
    assert "effect" in schemas["MoveRecord"]["properties"].keys() - set(schemas["MoveRecord"]["required"])


def test_only_requests_with_a_body_can_be_refused_for_it(document: dict[str, Any]) -> None:
    """A GET has none. A dry run names brokers, which may not be known."""
    of_a_body = {"408", "413", "415"}
    output = {name: set(item["responses"]) for name, item in operations(document) if "/api/v1/" in name}
    assert {name for name in output if of_a_body & output[name]} == {
        name for name in output if not name.startswith("GET ")
    }
    assert all(of_a_body <= value for name, value in output.items() if not name.startswith("GET "))
    assert "404" in output["POST /api/v1/plans"]


def test_each_route_names_the_role_it_needs(tokens: Tokens) -> None:
    """With credentials configured they are needed; without, reads and dry runs need none; probes never."""
    open_app, guarded = (
        create_app(Shop().service, mutations=True),
        create_app(Shop().service, mutations=True, access=access_for(tokens)),
    )
    for app, more in ((open_app, [{}]), (guarded, [])):
        document = app.openapi()
        assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
        needed = {name: operation.get("security", []) for name, operation in operations(document)}
        assert needed["GET /api/v1/state"] == [{"bearer": ["viewer"]}, *more]
        assert needed["POST /api/v1/plans"] == [{"bearer": ["operator"]}, *more]
        assert needed["PUT /api/v1/mode"] == [{"bearer": ["admin"]}]
        assert needed["GET /livez"] == needed["GET /metrics"] == []


def test_every_dry_run_is_listed(document: dict[str, Any]) -> None:
    """In the description of the document, and on the page under roles and under requests that can be repeated."""
    dry_runs = {
        name.replace("/api/v1", "")
        for name, operation in operations(document)
        if not name.startswith("GET ") and operation["tags"] != ["mutations"]
    }
    page = re.split(r"\n(?=- \*\*|\n)", api_page())
    (roles,) = [item for item in page if item.startswith("- **Roles**")]
    (repeatable,) = [item for item in page if item.startswith("- **No change at all**")]
    for text in (document["info"]["description"], roles, repeatable):
        assert set(re.findall("`(POST /.*?)`", text)) == dry_runs


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """One a role."""
    return Tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """The answer to the example request of each method and path: JSON, or a text."""
    return json.loads(answers_text())


def test_every_route_has_an_answer_about_its_request(document: dict[str, Any], answers: dict[str, Any]) -> None:
    """The names in path, query and body of the example request occur in the answer."""
    assert set(answers) == {name for name, _ in operations(document)}
    missing = {}
    for example in examples(document):
        schemas = [item["schema"] for item in example.operation.get("parameters", ())]
        request = [schema["examples"][0] for schema in schemas if "examples" in schema]
        request += [value for key, value in (example.body or {}).items() if key != "reason"]
        answer = answers[f"{example.method.upper()} {example.route}"]
        if not isinstance(answer, str):
            text = json.dumps(answer)
            missing[example.route] = [word for word in request if isinstance(word, str) and word not in text]
    assert {name: words for name, words in missing.items() if words} == {}


def test_what_an_example_calls_a_bundle_or_a_topic_is_one(answers: dict[str, Any]) -> None:
    """A reader copies the form of names from it."""
    part = r"[\w-]+"
    forms = {
        "bundle": rf"{part}/{part}/0x[0-9a-f]{{8}}_0x[0-9a-f]{{8}}",
        "topic": rf"persistent://{part}/{part}/{part}",
    }
    for key, form in forms.items():
        names = set(re.findall(rf'"{key}": "([^"]+)"', json.dumps(answers)))
        assert names and {name for name in names if not re.fullmatch(form, name)} == set()


def test_the_examples_drain_and_warm_the_broker_of_the_request(answers: dict[str, Any]) -> None:
    drain, warm = (answers[f"POST /api/v1/brokers/{{broker}}/{verb}"] for verb in ("drain", "warm"))
    assert {move["source"] for move in drain["moves"]} == {drain["broker"]}
    assert {item["broker"] for item in drain["refusals"]} == {drain["broker"]}
    assert {move["target"] for move in warm["moves"]} == {warm["broker"]}
    why = answers["GET /api/v1/brokers/{broker}/why"]
    assert (why["kind"], why["broker"]) == ("broker", why["name"]) and why["sentence"].startswith(why["name"])


def test_the_examples_show_what_the_tcp_port_answers(answers: dict[str, Any]) -> None:
    """Reads go there, without credentials; sidecars have the default port."""
    who = answers["GET /api/v1/whoami"]
    assert (who["mutations"], who["you"], who["your_role"]) == (False, "", "viewer")
    assert answers["GET /api/v1/state"]["leader"]["url"].endswith(f":{ApiSettings().port}")
    assert answers["GET /api/v1/plans"]


def test_the_page_lists_routes_under_the_tag_of_the_document(document: dict[str, Any]) -> None:
    tags = {name: operation["tags"] for name, operation in operations(document)}
    parts = re.split(r"^## ", api_page(), flags=re.MULTILINE)
    listed = {
        route: part.split("\n")[0].lower()
        for part in parts
        for route in re.findall(r"^\| `([A-Z]+ /[^`]*)`", part, re.MULTILINE)
    }
    assert {route: [tag] for route, tag in listed.items() if tags[route] != ["mutations"]} == {
        route: tag for route, tag in tags.items() if tag != ["mutations"]
    }
    assert listed["POST /api/v1/tasks/{task}/stop"] == listed["GET /api/v1/tasks"]


def test_the_reference_defines_its_shell_function_for_every_shell() -> None:
    """zsh does not split `$ask` into words."""
    script = re.findall(r"```sh\n(.*?)\n```", api_page(), re.DOTALL)[0]
    assert "$ask" not in script and script.startswith("ask() {") and '"$@"' in script
