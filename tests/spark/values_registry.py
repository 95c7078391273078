"""A schema registry for tests: the REST calls that ours and other clients use, over real HTTP, in memory.

It answers as Confluent's registry does, error codes included: ids are given in the order schemas come, the same schema
has the same id in every subject. A schema comes back in the form in which it was registered. Compatibility is not
checked, but a subject can be told to refuse whatever comes.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class RegistryServer:
    """What the registry has, and what it was asked."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: Counter[str] = Counter()
        self.refused_subjects: set[str] = set()
        # What to answer to the next requests instead: HTTP statuses.
        self.failures: list[int] = []
        self.credentials: tuple[str, str] | None = None
        self.gives_guids = True
        self.url = ""

    def add(self, subject: str, text: str, kind: str = "AVRO", references: Any = ()) -> int:
        schema = {"schema": text, "schemaType": kind, "references": list(references)}
        known = [each for each in self.schemas if {name: each[name] for name in schema} == schema]
        if not known:
            guid = str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(schema)))
            self.schemas.append({**schema, "id": len(self.schemas) + 1, "guid": guid})
            known = self.schemas[-1:]
        number: int = known[0]["id"]
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.requests[f"{method} {path}"] += 1
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "Error in the backend data store"}
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if method == "GET":
                found = [each for each in self.schemas if str(each["id"]) == number]
                return self._schema(found)
            case ["schemas", "guids", guid] if method == "GET":
                return self._schema([each for each in self.schemas if each["guid"] == guid])
            case ["subjects", subject, "versions", version] if method == "GET":
                return self._version(unquote(subject), version)
            case ["subjects", subject, "versions"] if method == "POST":
                if unquote(subject) in self.refused_subjects:
                    return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
                number = self.add(
                    unquote(subject), body["schema"], body.get("schemaType", "AVRO"), body.get("references", ())
                )
                return 200, self._registered(unquote(subject), number)
            case ["subjects", subject] if method == "POST":
                return self._look_up(unquote(subject), body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _schema(self, found: list[dict[str, Any]]) -> tuple[int, Any]:
        if not found:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self._shown(found[0])

    def _shown(self, schema: dict[str, Any]) -> dict[str, Any]:
        shown = dict(schema)
        if shown["schemaType"] == "AVRO":
            del shown["schemaType"]
        if not self.gives_guids:
            del shown["guid"]
        if not shown["references"]:
            del shown["references"]
        return shown

    def _registered(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {**self._shown(self.schemas[number - 1]), "subject": subject, "version": version}

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        place = len(versions) if version in ("latest", "-1") else int(version)
        if not 0 < place <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        schema = self.schemas[versions[place - 1] - 1]
        return 200, {**self._shown(schema), "subject": subject, "version": place}

    def _look_up(self, subject: str, body: Any) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for number in self.subjects[subject]:
            if self.schemas[number - 1]["schema"] == body["schema"]:
                return 200, self._registered(subject, number)
        return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def registry_server(certificate: str | None = None) -> Iterator[RegistryServer]:
    """A registry at an address of its own, until the block ends. With a certificate (and key) file it speaks TLS."""
    server = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Silence: tests look at `requests`."""

        def _serve(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            if server.credentials is not None and self.headers.get("Authorization") != _basic(*server.credentials):
                status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, answer = server.answer(method, re.sub(r"/+", "/", urlsplit(self.path).path), body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        http.socket = context.wrap_socket(http.socket, server_side=True)
        scheme = "https"
    server.url = f"{scheme}://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
