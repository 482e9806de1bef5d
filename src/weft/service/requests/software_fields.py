"""The environment that a job asks for: a folder of packages, or an image with volumes."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from weft.core.model.launch import Software, SoftwareKind
from weft.service.requests.field_types import LONGEST_NAME, FilePath, clean_path
from weft.service.requests.request_base import RequestBody

IMAGE = re.compile(r"([a-z]+://)?[A-Za-z0-9/.][A-Za-z0-9._/:@+-]*")
INSIDE = r"/[^:,\"'\\]*"
NAMED = r"(secret/)?[a-z0-9][a-z0-9.-]{0,252}"  # a claim or a secret of Kubernetes
VOLUME = re.compile(rf"({INSIDE}(:{INSIDE})?|{NAMED}:{INSIDE})(:r[ow])?")


def _image(text: str) -> str:
    if not IMAGE.fullmatch(clean_path(text)):
        raise ValueError("is not the name of an image, such as registry.example/torch:2.9")
    return text


def _volume(text: str) -> str:
    if not VOLUME.fullmatch(text) or any(".." in clean_path(p) for p in text.split(":")):
        raise ValueError("is not a volume: /path, /path:/inside:ro, or CLAIM:/inside")
    return text


Image = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME * 2), AfterValidator(_image)]
Volume = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_volume)]


class SoftwareFields(RequestBody):
    """The environment a job runs in: one of these, an image with the folders of nodes it sees."""

    venv: FilePath | None = None
    conda: FilePath | None = None
    uv: FilePath | None = None
    image: Image | None = None
    volumes: Annotated[list[Volume], Field(max_length=64)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one(self) -> SoftwareFields:
        if len(self.model_fields_set - {"volumes"}) != 1:
            raise ValueError("an environment is one of venv, conda, uv and image")
        if self.volumes and self.image is None:
            raise ValueError("volumes are for images; other environments see the node's files")
        return self


def software_of(fields: SoftwareFields | None) -> Software | None:
    """What a job is given of it."""
    if fields is None:
        return None
    ((kind, name),) = fields.model_dump(exclude_none=True, exclude={"volumes"}).items()
    return Software(SoftwareKind(kind), name, tuple(fields.volumes))
