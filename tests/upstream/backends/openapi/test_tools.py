"""Operations of a description as tools."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from portico.errors import BackendUnavailable
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.loader import ApiDescription, load_description
from portico.upstream.backends.openapi.reader import DescriptionSource
from portico.upstream.backends.openapi.schemas import MAX_SCHEMA_BYTES, OMITTED_TEXT
from portico.upstream.backends.openapi.tools import (
    ConfiguredParameters,
    choose_media_type,
)
from tests.upstream.backends.openapi.petstore import FIXTURES

NOTHING = ConfiguredParameters((), ())


def read(
    place: Path, given: ConfiguredParameters = NOTHING, base_url: str | None = None
) -> ApiDescription:
    return load_description(DescriptionSource("shop", str(place), base_url=base_url), given)


def tools(place: Path, given: ConfiguredParameters = NOTHING) -> dict[str, Raw]:
    return {tool["name"]: tool for tool in read(place, given).load_definitions()}


def described(tmp_path: Path, schema: Any, **more: Any) -> Raw:
    """The schema of a body as the tool has it."""
    body = {
        "required": True,
        "content": {"application/json": {"schema": {"type": "array", "items": schema}}},
    }
    document = {
        "openapi": "3.0.0",
        "servers": [{"url": "http://x"}],
        "paths": {"/x": {"post": {"requestBody": body}}},
    }
    (tmp_path / "api.json").write_text(json.dumps({**document, **more}))
    (tool,) = tools(tmp_path / "api.json").values()
    jsonschema_rs.validator_for(tool["inputSchema"])
    return tool["inputSchema"]


def item(tmp_path: Path, schema: Any, **more: Any) -> Raw:
    return described(tmp_path, schema, **more)["properties"]["body"]["items"]


@pytest.fixture(scope="module")
def petstore() -> dict[str, Raw]:
    return tools(FIXTURES / "petstore.yaml")


@pytest.fixture(scope="module")
def swagger() -> dict[str, Raw]:
    return tools(FIXTURES / "petstore-2.0.json")


def test_every_operation_is_a_tool_with_a_name_of_its_own(petstore: dict[str, Raw]):
    assert list(petstore) == [
        "listPets",
        "createPet",
        "getPet",
        "replacePet",
        "deletePet",
        "getPhoto",
        "uploadPhoto",
        "login",
        "post_categories",
        "listPets_2",
    ]


def test_a_description_says_what_it_does_and_which_request_it_is(petstore: dict[str, Raw]):
    assert petstore["listPets"]["title"] == "List the pets"
    assert petstore["listPets"]["description"] == (
        "List the pets.\n\nGives the pets of the shop, a page at a time.\n\nGET /pets"
    )
    assert (
        petstore["deletePet"]["description"]
        == "Remove a pet for good.\n\nDeprecated. DELETE /pets/{petId}"
    )


def test_methods_say_what_they_promise(petstore: dict[str, Raw]):
    assert petstore["listPets"]["annotations"]["readOnlyHint"] is True
    assert petstore["deletePet"]["annotations"]["destructiveHint"] is True
    assert petstore["replacePet"]["annotations"]["idempotentHint"] is True
    assert "destructiveHint" not in petstore["createPet"]["annotations"]


def test_parameters_of_a_path_and_an_operation_are_arguments(petstore: dict[str, Raw]):
    schema = petstore["listPets"]["inputSchema"]
    assert schema["properties"] == {
        "limit": {
            "type": "integer",
            "description": "How many at most.",
            "exclusiveMinimum": 0,
            "maximum": 100,
            "default": 20,
        },
        "tags": {"type": "array", "items": {"type": "string"}},
        "status": {"type": "string", "enum": ["available", "sold", "off", "on"]},
        "X-Trace": {"type": "string"},
    }
    assert "required" not in schema
    assert petstore["getPet"]["inputSchema"]["required"] == ["petId"]


def test_what_allof_brings_together_are_arguments_and_what_is_read_only_is_none(
    petstore: dict[str, Raw],
):
    schema = petstore["createPet"]["inputSchema"]
    assert list(schema["properties"]) == [
        "X-Trace",
        "name",
        "born",
        "status",
        "category",
        "weight",
        "owner",
    ]
    assert schema["required"] == ["name"]
    assert schema["properties"]["born"] == {
        "type": ["string", "null"],
        "format": "date",
        "examples": ["2020-02-29"],
    }
    assert schema["properties"]["weight"] == {"type": "number", "exclusiveMinimum": 0}


def test_definitions_that_refer_to_themselves_are_kept_once_and_only_those_that_are_reached(
    petstore: dict[str, Raw],
):
    schema = petstore["createPet"]["inputSchema"]
    assert set(schema["$defs"]) == {"Category", "Owner", "Pet", "NewPet"}
    assert schema["$defs"]["Category"]["properties"]["parent"] == {"$ref": "#/$defs/Category"}
    assert "discriminator" not in schema["$defs"]["Owner"]
    assert "$defs" not in petstore["listPets"]["inputSchema"]
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid(
        {"name": "Rex", "owner": None, "category": {"parent": {"name": "dogs"}}}
    )
    assert not validator.is_valid({"name": "Rex", "category": {"parent": {"name": 3}}})


def test_a_body_that_is_no_plain_object_is_one_argument(petstore: dict[str, Raw]):
    schema = petstore["post_categories"]["inputSchema"]
    assert schema["properties"] == {"body": {"$ref": "#/$defs/Category"}}
    assert schema["required"] == ["body"]


def test_a_file_is_a_text_or_says_that_it_is_binary(
    petstore: dict[str, Raw], swagger: dict[str, Raw]
):
    for listing in (petstore, swagger):
        schema = listing["uploadPhoto"]["inputSchema"]
        assert schema["required"] == ["petId", "file"]
        validator = jsonschema_rs.validator_for(schema)
        assert validator.is_valid({"petId": 1, "file": "text"})
        assert validator.is_valid({"petId": 1, "file": {"base64": "AAE=", "filename": "a.png"}})
        assert not validator.is_valid({"petId": 1, "file": {"bytes": "AAE="}})


def test_names_that_meet_are_told_apart_by_their_place():
    found = _echo()
    assert list(found["same"]["inputSchema"]["properties"]) == ["id", "id_query", "body"]
    assert "filter_name" in found["query"]["inputSchema"]["properties"]


def test_headers_that_have_a_place_of_their_own_are_no_arguments():
    assert list(_echo()["head"]["inputSchema"]["properties"]) == ["X-Text", "X-Exploded", "crumb"]


def test_what_the_configuration_gives_is_no_argument():
    found = _echo(ConfiguredParameters(("x-text",), ("api_key",)))
    assert "X-Text" not in found["head"]["inputSchema"]["properties"]
    assert "api_key" not in found["query"]["inputSchema"]["properties"]


def _echo(given: ConfiguredParameters = NOTHING) -> dict[str, Raw]:
    api = load_description(
        DescriptionSource("echo", str(FIXTURES / "echo.yaml"), base_url="http://127.0.0.1:1"), given
    )
    return {tool["name"]: tool for tool in api.load_definitions()}


def test_swagger_2_has_the_same_tools(swagger: dict[str, Raw]):
    assert swagger["listPets"]["inputSchema"]["properties"]["limit"] == {
        "type": "integer",
        "exclusiveMaximum": 100,
    }
    assert list(swagger["createPet"]["inputSchema"]["properties"]) == ["name", "nickname", "mother"]
    assert swagger["createPet"]["inputSchema"]["properties"]["nickname"] == {
        "type": ["string", "null"]
    }
    assert list(swagger["createPet"]["inputSchema"]["$defs"]) == ["Pet"]
    assert swagger["updatePetWithForm"]["inputSchema"]["required"] == ["petId", "name"]
    assert read(FIXTURES / "petstore-2.0.json").server == "https://petstore.example/v1"


def test_servers_have_their_variables_filled_in():
    assert read(FIXTURES / "petstore.yaml").server == "https://eu.petstore.example/v1"


def test_a_description_in_several_files_is_one():
    found = tools(FIXTURES / "split" / "api.yaml")
    schema = found["makeThing"]["inputSchema"]
    assert list(schema["properties"]) == ["size", "name", "inside", "maker"]
    assert set(schema["$defs"]) == {"Thing", "maker.json"}


def test_no_reference_leads_out_of_the_folder_or_to_another_host():
    api = read(FIXTURES / "split" / "api.yaml")
    tool = next(tool for tool in api.load_definitions() if tool["name"] == "steal")
    assert tool["inputSchema"]["properties"] == {"above": {}, "elsewhere": {}, "passwords": {}}
    assert "3 references lead nowhere" in api.warnings[0]


def test_a_link_does_not_lead_out_of_the_folder_either(tmp_path: Path):
    (tmp_path / "secret.json").write_text(
        '{"type": "object", "properties": {"password": {"enum": ["hunter2"]}}}'
    )
    (tmp_path / "api").mkdir()
    try:
        (tmp_path / "api" / "inside.json").symlink_to(tmp_path / "secret.json")
    except OSError as error:
        pytest.skip(f"no links can be made here: {error}")
    document = FIXTURES / "split" / "api.yaml"
    (tmp_path / "api" / "api.yaml").write_text(
        document.read_text().replace("../petstore.yaml#/components/schemas/Pet", "inside.json")
    )
    assert "hunter2" not in str(read(tmp_path / "api" / "api.yaml").load_definitions())


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": [
            "a", None]}),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": False}, {"type": "integer",
            "minimum": 3}),
        ({"type": "string", "enum": [1.0, "b", "b"]}, {"type": "string", "enum": ["1.0", "b"]}),
        ({"type": "string", "pattern": "(?<=a)\\p{Foo"}, {"type": "string"}),
        ({"type": "string", "minLength": -1, "maxLength": "9"}, {"type": "string"}),
        ({"type": "text", "required": True}, {}),
        ({"type": "integer", "maximum": 2**70}, {"type": "integer"}),
        ({"type": "array", "items": [{"type": "string"}]}, {"type": "array", "prefixItems": [{
            "type": "string"}]}),
        ({"oneOf": [{"type": "string"}, {}]}, {"anyOf": [{"type": "string"}, {}]}),
        ({"allOf": [{"type": "string"}], "description": "d"}, {"type": "string",
            "description": "d"}),
        ({"nullable": True, "enum": ["a"]}, {"anyOf": [{"enum": ["a"]}, {"type": "null"}]}),
        ({"nullable": True, "oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}, {
            "type": "null"}]}),
        ({"description": "See [the <b>manual</b>](https://x/y)."}, {
            "description": "See the manual."}),
        ({"$ref": "#/nowhere"}, {}),
        ({"$ref": "#/loop"}, {}),
        ({"type": "object", "x-internal": 1, "xml": {}, "example": 3}, {"type": "object",
            "examples": [3]}),
    ],
)  # fmt: skip
def test_schemas_are_made_ones_that_json_schema_understands(
    tmp_path: Path, schema: Any, expected: Raw
):
    assert item(tmp_path, schema, loop={"$ref": "#/loop"}) == expected


def test_a_schema_that_is_too_large_keeps_what_is_near(tmp_path: Path):
    fields = {f"p{number}": {"type": "string", "description": "d" * 200} for number in range(30)}
    chain = {
        f"S{number}": {
            "type": "object",
            "properties": {**fields, "next": {"$ref": f"#/s/S{number + 1}"}},
        }
        for number in range(20)
    }
    schema = described(tmp_path, {"$ref": "#/s/S0"}, s=chain)
    assert len(json.dumps(schema)) < MAX_SCHEMA_BYTES + 5_000
    assert "p1" in schema["$defs"]["S0"]["properties"]
    assert OMITTED_TEXT in str(schema["$defs"])


def test_one_enormous_schema_is_cut_where_it_is_deepest(tmp_path: Path):
    def tree(depth: int) -> Raw:
        names = range(5 if depth else 0)
        return {
            "type": "object",
            "properties": {f"p{n}": tree(depth - 1) for n in names},
            "description": "d" * 50,
        }

    schema = described(tmp_path, tree(5))
    assert len(json.dumps(schema)) < MAX_SCHEMA_BYTES
    assert OMITTED_TEXT in str(schema)


def test_aliases_of_aliases_cost_no_more_than_a_bound(tmp_path: Path):
    lines = [
        "openapi: 3.0.0",
        "servers: [{url: 'http://x'}]",
        "a0: &a0 {type: object, properties: {x: {type: string}}}",
    ]
    for number in range(1, 12):
        fields = ", ".join(f"p{n}: *a{number - 1}" for n in range(9))
        lines.append(f"a{number}: &a{number} {{type: object, properties: {{{fields}}}}}")
    schema = "{type: array, items: *a11}"
    lines.append(
        f"paths: {{/x: {{post: {{requestBody: {{content: {{application/json: {{schema: "
        f"{schema}}}}}}}}}}}}}"
    )
    (tmp_path / "api.yaml").write_text("\n".join(lines))
    (tool,) = tools(tmp_path / "api.yaml").values()
    assert len(json.dumps(tool)) < MAX_SCHEMA_BYTES


def test_a_structure_that_contains_itself_does_no_harm(tmp_path: Path):
    content = "{application/json: {schema: &s {type: array, default: *s, items: *s}}}"
    head = "openapi: 3.0.0\nservers: [{url: 'http://x'}]\n"
    text = f"{head}paths: {{/x: {{post: {{requestBody: {{content: {content}}}}}}}}}"
    (tmp_path / "api.yaml").write_text(text)
    assert list(tools(tmp_path / "api.yaml")) == ["post_x"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no object"),
        ("[1, 2]", "no object"),
        ("openapi: [3", "neither JSON nor YAML"),
        ('{"openapi": ', "no JSON"),
        ("title: something else", "says neither"),
        ("openapi: 3.0.0\npaths: {}", "does not say where"),
        ("openapi: 3.0.0\nservers: [{url: 'http://x'}]\npaths: {}", "no operations"),
        ("swagger: '2.0'\npaths: {/x: {get: {}}}", "does not say where"),
    ],
)
def test_what_is_no_description_says_so(tmp_path: Path, text: str, reason: str):
    (tmp_path / "api.yaml").write_text(text)
    with pytest.raises(BackendUnavailable, match=reason):
        read(tmp_path / "api.yaml")


def test_long_and_odd_names_fit(tmp_path: Path):
    paths = {
        "/a": {"get": {"operationId": "repos/create for ünï"}, "post": {"operationId": "x" * 90}},
        "/b/{id}": {"get": {}, "post": {"operationId": "x" * 90}},
    }
    document = {"openapi": "3.2.0", "servers": [{"url": "http://x"}], "paths": paths}
    (tmp_path / "api.json").write_text(json.dumps(document))
    names = list(tools(tmp_path / "api.json"))
    assert names[0] == "repos_create_for_n"
    assert "get_b_id" in names
    assert len(set(names)) == 4
    assert all(len(name) <= 64 for name in names)


def test_json_is_preferred_among_media_types():
    assert (
        choose_media_type(["application/xml", "text/plain", "application/json"])
        == "application/json"
    )
    assert (
        choose_media_type(["application/json-patch+json", "application/merge-patch+json"])
        == "application/merge-patch+json"
    )
    assert choose_media_type(["text/plain", "multipart/form-data"]) == "multipart/form-data"


def test_a_body_that_is_text_is_a_text_whatever_it_means(tmp_path: Path):
    body = {
        "content": {"application/xml": {"schema": {"type": "object", "properties": {"name": {}}}}}
    }
    document = {
        "openapi": "3.0.0",
        "servers": [{"url": "http://x"}],
        "paths": {"/x": {"post": {"requestBody": body}}},
    }
    (tmp_path / "api.json").write_text(json.dumps(document))
    (tool,) = tools(tmp_path / "api.json").values()
    assert tool["inputSchema"]["properties"]["body"]["type"] == "string"
