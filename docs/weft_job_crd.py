"""The custom resource WeftJob: our job file as a structural schema of Kubernetes."""

from __future__ import annotations

from typing import Any

import yaml

from weft.engines.kubernetes.namespaces import JOBS_API
from weft.engines.kubernetes.weft_jobs import KIND
from weft.service.jobs.applied_jobs import FOREIGN
from weft.service.requests.job_file import JobFile

Schema = dict[str, Any]
# As Kubernetes takes them; `default` is left out, for a default must not become part of the spec.
PLAIN = (
    *("type", "description", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "maxProperties", "required"),
)
ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
TEXT, COUNT, TIME = (
    {"type": "string"},
    {"type": "integer"},
    {"type": "string", "format": "date-time"},
)
CONDITION = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        **dict.fromkeys(("type", "status", "reason", "message"), TEXT),
        "lastTransitionTime": TIME,
    },
}
STATUS = {
    **dict.fromkeys(("phase", "reason", "job", "tenant"), TEXT),
    "nodes": {"type": "array", "items": TEXT},
    **dict.fromkeys(("gpus", "asked", "attempts", "observedGeneration"), COUNT),
    **dict.fromkeys(("submittedAt", "startedAt", "endedAt"), TIME),
    "conditions": {"type": "array", "items": CONDITION},
}
COLUMNS = (
    ("State", "string", ".status.phase", 0),
    ("GPUs", "integer", ".status.gpus", 0),
    ("Why", "string", ".status.reason", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Asked", "integer", ".status.asked", 1),
    ("Nodes", "string", ".status.nodes", 1),
    ("Job", "string", ".status.job", 1),
)


def weft_job_crd(made: str) -> str:
    """The definition as it is applied."""
    group, version = JOBS_API.split("/")
    plural = f"{KIND.lower()}s"
    whole = JobFile.model_json_schema()
    spec = structural(whole, whole["$defs"])
    for name in FOREIGN:
        del spec["properties"][name]
    columns = [
        {"name": name, "type": kind, "jsonPath": path} | ({"priority": rank} if rank else {})
        for name, kind, path, rank in COLUMNS
    ]
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            # Fields that are not known are kept, so that Weft can say so in a condition.
            "spec": {**spec, **ANYTHING},
            "status": {"type": "object", "properties": STATUS},
        },
    }
    names = {"kind": KIND, "plural": plural, "singular": KIND.lower(), "shortNames": ["wj"]}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    return f"# {made}\n" + yaml.dump(body, sort_keys=False, Dumper=_Whole, width=100)


def structural(schema: Schema, known: dict[str, Schema]) -> Schema:
    """A schema of ours with what Kubernetes allows; a choice of types is checked by Weft alone."""
    if "$ref" in schema:
        return structural(known[schema["$ref"].rpartition("/")[2]], known)
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        return structural(choices[0], known)
    if choices or "type" not in schema:
        return dict(ANYTHING)
    made = {name: schema[name] for name in PLAIN if name in schema}
    if "exclusiveMinimum" in schema:
        made |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if "items" in schema:
        made["items"] = structural(schema["items"], known)
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = structural(schema["additionalProperties"], known)
    if "properties" in schema:
        fields = schema["properties"].items()
        made["properties"] = {name: structural(field, known) for name, field in fields}
    return made


class _Whole(yaml.SafeDumper):
    """Without references between parts, which not every reader knows."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True
