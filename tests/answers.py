"""Hold every answer of the server to api/openapi.yaml: a status that is described, and no field that is not.

Cluster.request() checks each answer that the tests get, and the end of a Cluster those that its agents and the command
line got: tests/openapi/tap.c, which is loaded into them, writes these down. In an object that lists its properties,
others are faults; an object that may have any says so by `additionalProperties: true`.
"""
import contextlib
import functools
import hashlib
import json
import marshal
import os
import re
import shutil
import sys

import fastjsonschema
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPENAPI = os.path.join(ROOT, "api", "openapi.yaml")
# Code that checks documents, which takes long to make: that of one description, for all processes of the tests.
CHECKERS = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "tests", "openapi", "checkers")
METHODS = {"get", "put", "post", "patch", "delete"}


@functools.cache
def description():
    with open(OPENAPI, encoding="utf-8") as f:
        return yaml.load(f, Loader=yaml.CSafeLoader)


def operations(document):
    """{(METHOD, path template): operation}"""
    return {(method.upper(), path): operation for path, item in document["paths"].items()
            for method, operation in item.items() if method in METHODS}


def resolved(document, node):
    """What a node is, or what its $ref leads to."""
    if "$ref" in node:
        for part in node["$ref"].removeprefix("#/").split("/"):
            document = document[part]
        return document
    return node


def closed(schema):
    """The schema where an object has no properties but those it lists; a condition (if, then) adds to such a list."""
    if not isinstance(schema, dict):
        return [closed(one) for one in schema] if isinstance(schema, list) else schema
    new = {key: value if key in ("if", "then") else closed(value) for key, value in schema.items()}
    if "properties" in schema and not {"if", "then"} & schema.keys():
        new.setdefault("additionalProperties", False)
    return new


@functools.cache
def routes():
    """[(method, pattern, template)]; templates with fewer parameters first."""
    templates = sorted(operations(description()), key=lambda key: key[1].count("{"))
    return [(method, re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))), template)
            for method, template in templates]


def template_of(method, path):
    path = path.split("?")[0]
    for of, pattern, template in routes():
        if of == method and pattern.fullmatch(path):
            return template
    return None


@functools.cache
def code_folder():
    """Where that of this description is kept; what is of others goes. Several tests may come here at once."""
    made_of = hashlib.sha256(f"{fastjsonschema.VERSION} {sys.version}".encode())
    for path in OPENAPI, __file__:
        with open(path, "rb") as f:
            made_of.update(f.read())
    folder = os.path.join(CHECKERS, made_of.hexdigest()[:16])
    if not os.path.exists(folder):
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(CHECKERS):
            if name != os.path.basename(folder):
                shutil.rmtree(os.path.join(CHECKERS, name), ignore_errors=True)
    return folder


def compiled(*name, schema):
    """A function that raises for a document that is not as this part of the description has it."""
    path = os.path.join(code_folder(), hashlib.sha256(repr(name).encode()).hexdigest()[:24])
    if not os.path.exists(path):
        schemas = closed(description()["components"]["schemas"])
        code = fastjsonschema.compile_to_code(dict(schema, components={"schemas": schemas}), use_default=False)
        new = f"{path}.{os.getpid()}"
        with open(new, "wb") as f:
            marshal.dump(compile(code, f"checks of {name}", "exec"), f)
        os.rename(new, path)
    module = {}
    with open(path, "rb") as f:
        exec(marshal.load(f), module)
    return module["validate"]


@functools.cache
def checker(method, template, status, kind):
    """A function that raises for a document that the answer may not be; None where the status has no such document."""
    document = description()
    if template is None:
        answer = document["components"]["responses"]["Problem"] if status >= 400 else None
    else:
        answers = operations(document)[(method, template)]["responses"]
        answer = answers.get(str(status)) or (answers.get("default") if status >= 400 else None)
        answer = resolved(document, answer) if answer else None
    assert answer, f"api/openapi.yaml does not describe status {status} of {method} {template}"
    content = answer.get("content", {}).get(kind)
    assert content, f"api/openapi.yaml does not describe {kind} for status {status} of {method} {template}"
    return compiled(method, template, status, kind, schema=closed(content["schema"]))


@functools.cache
def schema_checker(name):
    return compiled(name, schema={"$ref": f"#/components/schemas/{name}"})


# Of a stream; those that are not here are events of the list.
STREAMED = {"log": "LogPiece", "view-job": "Job", "view-node": "Node", "view-cluster": "Cluster",
            "left-out": "EventGap"}
SIGNS = {"end", "lagging", "reread"}  # what they say is in their name


def check_event(kind, document):
    """Fail where an event of a stream is not as api/openapi.yaml describes what it carries."""
    if kind in SIGNS:
        return
    try:
        schema_checker(STREAMED.get(kind, "Event"))(document)
    except fastjsonschema.JsonSchemaException as e:
        raise AssertionError(f"event {kind}: not as api/openapi.yaml describes it: {e.message}; "
                             f"is {str(e.value)[:300]}") from None


def check(method, path, status, kind, document):
    """Fail where an answer is not as api/openapi.yaml describes it. kind: its Content-Type without parameters."""
    template = template_of(method, path)
    try:
        checker(method, template, status, kind)(document)
    except fastjsonschema.JsonSchemaException as e:
        raise AssertionError(f"{method} {path}: {status}, not as api/openapi.yaml describes it: {e.message}; "
                             f"is {str(e.value)[:300]}") from None


def check_stream(path, text):
    """The same for the events of a stream, the last of which may be cut off."""
    for block in text.split("\n\n")[:-1]:
        fields = [line.partition(": ")[::2] for line in block.split("\n") if not line.startswith(":")]
        data = "\n".join(value for name, value in fields if name == "data")
        kind = dict(fields).get("event")
        if kind and data:
            check_event(kind, json.loads(data))


def tapped(path):
    """Of each answer that tests/openapi/tap.c wrote down: method, URL, status, type, body."""
    with contextlib.ExitStack() as stack:
        try:
            f = stack.enter_context(open(path, "rb"))
        except FileNotFoundError:
            return
        while line := f.readline():
            method, url, status, kind, size = line.decode().split()
            body = f.read(int(size) + 1)[:-1] if int(size) else b""
            yield method, url, int(status), kind, body


def check_tapped(path, server):
    """Hold them to the description, those of other servers aside. How many there were."""
    seen = set()
    for method, url, status, kind, body in tapped(path):
        if not url.startswith(server + "/") or (key := (method, template_of(method, url[len(server):]), status, body)
                                                 ) in seen:
            continue
        seen.add(key)
        if kind.endswith("json"):
            check(method, url[len(server):], status, kind, json.loads(body))
        elif kind == "text/event-stream":
            check_stream(url, body.decode())
    return len(seen)
