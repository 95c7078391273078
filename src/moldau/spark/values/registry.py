"""A client of schema registries: the few REST calls that reading and writing values need.

It speaks the interface of Confluent's registry, which others (Karapace, Apicurio, Redpanda) offer, too. It decides what
is retried and how long answers are believed: a schema of an id never changes, so each is fetched once in a process.
Whether a schema is unknown (the record's fault) or nothing can be known (`RegistryError`, the query stops) is told
apart here and nowhere else. Passwords never appear in messages.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from moldau.client.errors import MoldauError
from moldau.spark.values.errors import RegistryError, UnknownSchemaError

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND, _SCHEMA_NOT_FOUND = 40401, 40402, 40403
_NOT_FOUND = frozenset({_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND, _SCHEMA_NOT_FOUND})
_RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
# An id that does not exist today may exist tomorrow, but is not asked for again with every record.
_UNKNOWN_FOR_SECONDS = 30.0
_LARGEST_NUMBER_OF_UNKNOWN = 10_000
_FIRST_WAIT_SECONDS = 0.1


@dataclass(slots=True, frozen=True)
class Reference:
    """Another schema that a schema uses, under the name it uses for it."""

    name: str
    subject: str
    version: int


@dataclass(slots=True, frozen=True)
class RegisteredSchema:
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    guid: str | None = None
    version: int | None = None


@dataclass(slots=True, frozen=True)
class Registry:
    """Where a schema registry is, and how to get in.

        Registry("http://localhost:8081")
        Registry("https://registry.example.org", user="app", password="...", ca_file="/etc/ca.pem")

    Several addresses of one registry are separated by commas; they are tried in turn. `token` is sent as a bearer
    token. `certificate_file` and `key_file` are for registries that ask clients for a certificate.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    timeout: float = 10.0
    retries: int = 4

    def __post_init__(self) -> None:
        for address in self.url.split(","):
            parts = urllib.parse.urlsplit(address.strip())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise MoldauError(f"A registry's address is http://host:port or https://host:port, not {address!r}")
            if parts.username is not None:
                raise MoldauError("Give the registry's user and password as user=... and password=..., not in its url")

    def by_id(self, number: int, *, serialized: bool = False) -> RegisteredSchema:
        """The schema of an id, as it stands in front of a record's value. UnknownSchemaError if there is none."""
        return self._once(f"/schemas/ids/{number}", f"schema {number}", serialized)

    def by_guid(self, guid: str, *, serialized: bool = False) -> RegisteredSchema:
        """The schema of a GUID, as it stands in a record's header. UnknownSchemaError if there is none."""
        return self._once(f"/schemas/guids/{guid}", f"schema {guid}", serialized)

    def by_version(self, subject: str, version: int | str, *, serialized: bool = False) -> RegisteredSchema:
        """A version of a subject; unless it is a number, it is asked for every time."""
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
        what = f"version {version} of subject {subject!r}"
        if isinstance(version, int):
            return self._once(path, what, serialized)
        return self._fetch(path, what, serialized)

    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        """The newest version of a subject. UnknownSchemaError if there is no such subject."""
        return self.by_version(subject, "latest", serialized=serialized)

    def register(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """Register a schema; if the subject has it already, nothing changes. The answer has its id."""
        return self._post(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", subject, schema)

    def look_up(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """The id of a schema that the subject has. UnknownSchemaError if it has not."""
        return self._post(f"/subjects/{urllib.parse.quote(subject, safe='')}", subject, schema)

    def _post(self, path: str, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.kind}
        if schema.references:
            body["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
            ]
        answer = _exchange(self, path, f"a schema for subject {subject!r}", body)
        number = answer.get("id")
        if not isinstance(number, int):
            raise RegistryError(f"The registry at {self.url} answered without an id: is it a schema registry?")
        return RegisteredSchema(
            schema.kind, schema.text, schema.references, number, answer.get("guid"), answer.get("version")
        )

    def _once(self, path: str, what: str, serialized: bool) -> RegisteredSchema:
        key = (self, path, serialized)
        with _lock:
            if key in _known:
                return _known[key]
            if _unknown.get(key, 0.0) > time.monotonic():
                raise UnknownSchemaError(f"the registry has no {what}")
        try:
            schema = self._fetch(path, what, serialized)
        except UnknownSchemaError:
            with _lock:
                if len(_unknown) >= _LARGEST_NUMBER_OF_UNKNOWN:
                    _unknown.clear()
                _unknown[key] = time.monotonic() + _UNKNOWN_FOR_SECONDS
            raise
        with _lock:
            _known[key] = schema
        return schema

    def _fetch(self, path: str, what: str, serialized: bool) -> RegisteredSchema:
        answer = _exchange(self, f"{path}?format=serialized" if serialized else path, what, None)
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RegistryError(f"The registry at {self.url} answered without a schema: is it a schema registry?")
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in answer.get("references") or ()
        )
        # A registry that knows only Avro does not say so.
        kind = answer.get("schemaType") or AVRO
        return RegisteredSchema(kind, text, references, answer.get("id"), answer.get("guid"), answer.get("version"))


# Registries are compared by what they were made of, so that every task of a worker finds what others have fetched.
_known: dict[tuple[Registry, str, bool], RegisteredSchema] = {}
_unknown: dict[tuple[Registry, str, bool], float] = {}
_lock = threading.Lock()


def forget_schemas() -> None:
    """Ask the registry anew for everything. For tests that change what a registry says."""
    with _lock:
        _known.clear()
        _unknown.clear()


def _exchange(registry: Registry, path: str, what: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """One call, at all addresses in turn and again after a while, until one of them answers."""
    addresses = [each.strip().rstrip("/") for each in registry.url.split(",")]
    wait = _FIRST_WAIT_SECONDS
    problem = ""
    for attempt in range(registry.retries + 1):
        if attempt:
            time.sleep(wait * (0.5 + random.random() / 2))
            wait *= 2
        for address in addresses:
            request = _request(registry, address + path, body)
            try:
                return _answer(registry, request)
            except urllib.error.HTTPError as error:
                problem = _refusal(registry, error, what)
            except (OSError, ssl.SSLError) as error:
                if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
                    raise RegistryError(
                        f"The certificate of the registry at {address} is not trusted ({error}): set "
                        "Registry(ca_file=...)"
                    ) from error
                problem = str(getattr(error, "reason", error)) or type(error).__name__
    raise RegistryError(
        f"The schema registry at {registry.url} could not be asked for {what} in {registry.retries + 1} attempts "
        f"({problem}): is it running, and is the address right?"
    )


def _request(registry: Registry, url: str, body: dict[str, Any] | None) -> urllib.request.Request:
    headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
    if registry.token is not None:
        headers["Authorization"] = f"Bearer {registry.token}"
    elif registry.user is not None:
        pair = f"{registry.user}:{registry.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    data = None
    if body is not None:
        headers["Content-Type"] = _CONTENT_TYPE
        data = json.dumps(body).encode()
    # The scheme is checked when a Registry is made: nothing but http and https comes here.
    return urllib.request.Request(url, data, headers)  # noqa: S310


def _answer(registry: Registry, request: urllib.request.Request) -> dict[str, Any]:
    context = _tls(registry) if request.type == "https" else None
    with urllib.request.urlopen(request, timeout=registry.timeout, context=context) as response:  # noqa: S310
        text = response.read(_LARGEST_ANSWER_BYTES)
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise RegistryError(
            f"What answers at {registry.url} is no schema registry (no JSON, but {text[:60]!r}): check the address"
        ) from error
    if not isinstance(answer, dict):
        raise RegistryError(f"What answers at {registry.url} is no schema registry: check the address")
    return answer


def _tls(registry: Registry) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=registry.ca_file)
        if registry.certificate_file is not None:
            context.load_cert_chain(registry.certificate_file, registry.key_file, registry.key_password)
    except OSError as error:
        raise RegistryError(f"The certificates for the registry at {registry.url} cannot be read: {error}") from error
    return context


def _refusal(registry: Registry, error: urllib.error.HTTPError, what: str) -> str:
    """Raise what a refusal means, or say why to try again."""
    with error:
        text = error.read(65_536)
    try:
        answer = json.loads(text)
        code, message = int(answer["error_code"]), str(answer["message"])
    except (ValueError, KeyError, TypeError):
        code, message = error.code, error.reason or "no reason given"
    if code in _NOT_FOUND:
        raise UnknownSchemaError(f"the registry has no {what}")
    said = f"HTTP {error.code}, {message}"
    if error.code in _RETRIED_STATUSES:
        return said
    if error.code in (401, 403):
        raise RegistryError(
            f"The schema registry at {registry.url} refuses access ({said}): check Registry(user=..., password=...) or "
            "token, and what the user may do"
        )
    if error.code == 409:
        raise RegistryError(
            f"The schema registry at {registry.url} refuses {what} as incompatible with earlier versions ({message}): "
            "change the schema, or the subject's compatibility"
        )
    raise RegistryError(f"The schema registry at {registry.url} refuses to answer about {what} ({said})")
