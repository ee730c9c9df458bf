"""A local Hugging Face Hub: the protocol of huggingface_hub, datasets and transformers, with simulated failures.

The responses follow huggingface_hub 0.35 to 1.33 (utils/_http.py, file_download.py, _commit_api.py, lfs.py):
X-Error-Code distinguishes a missing repository, revision and file; the HEAD of a small file is redirected to a path
of the same host (307), that of a large one to a storage host (302) that must not get the token; a commit is NDJSON.
Xet storage is not supported: with HF_HUB_DISABLE_XET=1 the clients use Git LFS, as they do without hf_xet.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from support.loopback import Server, running_server

LARGE = (".safetensors", ".bin", ".parquet")  # stored in LFS by the .gitattributes of new repositories
API = re.compile(r"/api/(models|datasets)/((?:[^/]+/)?[^/]+?)(?:/(revision|tree|paths-info|preupload|commit)/(.+))?$")
RESOLVE = re.compile(r"/(datasets/)?((?:[^/]+/)?[^/]+)/resolve/([^/]+)/(.+)$")
CACHED = re.compile(r"/api/resolve-cache/(models|datasets)/((?:[^/]+/)?[^/]+)/([0-9a-f]{40})/(.+)$")
BATCH = re.compile(r"/(datasets/)?((?:[^/]+/)?[^/]+)\.git/info/lfs/objects/batch$")


@dataclass
class Repository:
    """One repository: files by commit, and commits by branch or tag."""

    kind: str  # models or datasets
    name: str
    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], *tags: str) -> str:
        """Add or replace files on main. Returns the new commit."""
        merged = self.commits.get(self.names.get("main", ""), {}) | files
        sha = hashlib.sha1(f"{self.name}{len(self.commits)}{sorted(merged)}".encode()).hexdigest()
        self.commits[sha] = merged
        self.names |= dict.fromkeys(("main", *tags), sha)
        return sha

    @property
    def files(self) -> dict[str, bytes]:
        """The files of main."""
        return self.commits.get(self.names.get("main", ""), {})


@dataclass
class Fault:
    """The response to a matching request: a status, `hang` or `drop`, `times` times."""

    request: str  # a pattern over "METHOD /path?query"
    response: int | str
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1 << 30
    skip: int = 0


class Hub:
    """Repositories, tokens ({token: "read" or "write"}), tokens with access to gated ones, faults, requests."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.tokens = {"hf_right": "write", "hf_reader": "read", "hf_stranger": "read"}
        self.admitted = {"hf_right", "hf_reader"}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []  # ("METHOD /path?query", token)
        self.stored: dict[str, bytes] = {}  # LFS objects by SHA-256
        self.created: list[dict[str, Any]] = []
        self.commit_messages: list[str] = []
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.address = ""
        self.close: Callable[[], None] = self.stopping.set

    def add(
        self, kind: str, name: str, files: dict[str, bytes | str] | Path, *tags: str, **access: bool
    ) -> Repository:
        """Add a repository with these files, or those of a folder."""
        if isinstance(files, Path):
            files = {str(p.relative_to(files)): p.read_bytes() for p in sorted(files.rglob("*")) if p.is_file()}
        repository = self.repositories.setdefault((kind, name), Repository(kind, name, **access))
        repository.commit({name: text.encode() if isinstance(text, str) else text for name, text in files.items()},
                          *tags)  # fmt: skip
        return repository

    def fail(self, request: str, response: int | str, **more: Any) -> None:
        """Fail matching requests from now on."""
        self.faults.append(Fault(request, response, **more))

    def find_fault(self, request: str) -> Fault | None:
        """The first fault that applies to a request."""
        with self.lock:
            for fault in self.faults:
                if re.search(fault.request, request):
                    fault.skip -= 1
                    if fault.skip < 0 and fault.times > 0:
                        fault.times -= 1
                        return fault
        return None

    def matching_requests(self, pattern: str) -> list[str]:
        """The matching requests, in order."""
        return [request for request, _ in self.requests if re.search(pattern, request)]


class HubError(Exception):
    """An error response."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    hub: Hub  # set by Server

    def handle_request(self) -> None:
        """Log the request, then fail or respond."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        request = f"{self.command} {self.path}"
        self.hub.requests.append((request, token))
        self.body = self.read_body()
        fault = self.hub.find_fault(request)
        if fault and fault.response == "hang":
            self.hub.stopping.wait(900)
        if fault and not isinstance(fault.response, int):
            self.close_connection = True
            return
        if fault:
            self.respond(int(fault.response), {"error": "fault"}, fault.headers)
            return
        try:
            self.route(urlsplit(self.path), token)
        except HubError as error:
            headers = {"X-Error-Message": error.message} | ({"X-Error-Code": error.code} if error.code else {})
            self.respond(error.status, {"error": error.message}, headers)

    do_GET = do_HEAD = do_POST = do_PUT = handle_request  # noqa: N815

    def route(self, url: Any, token: str) -> None:
        """Call the method for a path."""
        path, query = unquote(url.path), parse_qs(url.query)
        if token and token not in self.hub.tokens:
            raise HubError(401, "", "Invalid credentials in Authorization header")
        if path == "/api/whoami-v2":
            self.whoami(token)
        elif path == "/api/repos/create":
            self.create(token)
        elif path == "/api/validate-yaml":
            self.respond(200, {"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/storage/([0-9a-f]{64})", path):
            self.storage(found[1], token)
        elif found := CACHED.fullmatch(path):
            repository = self.find(found[1], found[2], token)
            self.small_file(found[3], repository.commits[found[3]][found[4]])
        elif found := BATCH.fullmatch(path):
            self.find("datasets" if found[1] else "models", found[2], token)
            self.lfs_batch(token)
        elif found := RESOLVE.fullmatch(path):
            self.resolve(self.find("datasets" if found[1] else "models", found[2], token), found[3], found[4], token)
        elif found := API.fullmatch(path):
            self.api(self.find(found[1], found[2], token), found[3] or "", found[4] or "main", query, token)
        else:
            raise HubError(404, "", "Sorry, we can't find the page you are looking for.")

    def find(self, kind: str, name: str, token: str) -> Repository:
        """The repository. Private repositories give the error of missing ones, as on the real Hub."""
        repository = self.hub.repositories.get((kind, name))
        if repository is None or (repository.private and token not in self.hub.admitted):
            raise HubError(404 if token else 401, "RepoNotFound", "Repository not found")
        return repository

    def revision(self, repository: Repository, name: str) -> tuple[str, dict[str, bytes]]:
        """(commit, files)."""
        sha = repository.names.get(name, name)
        if sha not in repository.commits:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {name}")
        return sha, repository.commits[sha]

    def whoami(self, token: str) -> None:
        if not token:
            raise HubError(401, "", "Invalid username or password.")
        role = {"displayName": "one", "role": self.hub.tokens[token]}
        self.respond(200, {"type": "user", "name": "me", "orgs": [], "auth": {"accessToken": role}})

    # --- Reading

    def api(self, repository: Repository, endpoint: str, rest: str, query: dict[str, list[str]], token: str) -> None:
        if endpoint in ("preupload", "commit"):
            self.require_write_token(token)
            self.preupload() if endpoint == "preupload" else self.create_commit(repository)
            return
        revision, _, folder = rest.partition("/")
        sha, files = self.revision(repository, revision)
        if endpoint == "tree":
            recursive = query.get("recursive", ["false"])[0].lower() in ("true", "1")
            self.respond(200, tree(files, folder, recursive))
        elif endpoint == "paths-info":
            body = self.body.decode()
            names = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
            entries = {entry["path"]: entry for entry in tree(files, "", recursive=True)}
            self.respond(200, [entries[name] for name in names if name in entries])
        else:
            self.respond(200, {
                "_id": "6" * 24, "id": repository.name, "modelId": repository.name, "sha": sha, "author": "someone",
                "lastModified": "2026-01-02T03:04:05.000Z", "createdAt": "2026-01-02T03:04:05.000Z",
                "private": repository.private, "gated": "manual" if repository.gated else False, "disabled": False,
                "tags": [], "downloads": 1, "likes": 0, "siblings": [{"rfilename": name} for name in sorted(files)],
            })  # fmt: skip

    def resolve(self, repository: Repository, revision: str, name: str, token: str) -> None:
        if repository.gated and token not in self.hub.admitted and name != "README.md":
            message = f"Access to {repository.name} is restricted."
            raise HubError(403 if token else 401, "GatedRepo", message)
        sha, files = self.revision(repository, revision)
        if name not in files:
            raise HubError(404, "EntryNotFound", "Entry not found")
        content = files[name]
        headers = {"X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        if not name.endswith(LARGE):
            location = f"/api/resolve-cache/{repository.kind}/{repository.name}/{sha}/{name}"
            self.respond(307, None, headers | {"Location": location, "X-Linked-ETag": f'"{blob(content)}"',
                                              "X-Linked-Size": str(len(content))})  # fmt: skip
            return
        digest = hashlib.sha256(content).hexdigest()
        self.hub.stored[digest] = content
        storage = f"{self.hub.address.replace('127.0.0.1', 'localhost')}/storage/{digest}"
        self.respond(302, None, headers | {"Location": storage, "X-Linked-ETag": f'"{digest}"',
                                          "X-Linked-Size": str(len(content))})  # fmt: skip

    def small_file(self, sha: str, content: bytes) -> None:
        self.respond(200, content, {"X-Repo-Commit": sha, "ETag": f'"{blob(content)}"'})

    def storage(self, digest: str, token: str) -> None:
        """The storage host, which must not get the Hub's token."""
        if token:
            raise HubError(400, "", "Only one auth mechanism allowed")
        if self.command == "PUT":
            if hashlib.sha256(self.body).hexdigest() != digest:
                raise HubError(400, "", "BadDigest")
            self.hub.stored[digest] = self.body
        self.respond(200, self.hub.stored[digest] if self.command != "PUT" else b"", {"ETag": f'"{digest}"'})

    # --- Writing

    def require_write_token(self, token: str) -> None:
        if not token:
            raise HubError(401, "", "Invalid username or password.")
        if self.hub.tokens[token] != "write":
            raise HubError(403, "", "Forbidden: you must use a write token to upload to a repository.")

    def create(self, token: str) -> None:
        self.require_write_token(token)
        request = json.loads(self.body)
        name = f"{request.get('organization') or 'me'}/{request['name']}"
        if not name.startswith("me/"):
            raise HubError(403, "", f"You don't have the rights to create a model under the namespace {name}")
        self.hub.created.append(request)
        kind = f"{request.get('type', 'model')}s"
        record = {"url": f"{self.hub.address}/{name}", "name": name}
        if (kind, name) in self.hub.repositories:
            self.respond(409, record | {"error": "You already created this model repo"})
            return
        private = bool(request.get("private")) or request.get("visibility") == "private"
        self.hub.add(kind, name, {".gitattributes": "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"},
                     private=private)  # fmt: skip
        self.respond(200, record)

    def preupload(self) -> None:
        files = [
            {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
             "shouldIgnore": False, "oid": None}
            for file in json.loads(self.body)["files"]
        ]  # fmt: skip
        self.respond(200, {"files": files})

    def lfs_batch(self, token: str) -> None:
        self.require_write_token(token)
        objects = [
            {"oid": item["oid"], "size": item["size"], "authenticated": True} | (
                {} if item["oid"] in self.hub.stored
                else {"actions": {"upload": {"href": f"{self.hub.address}/storage/{item['oid']}"}}})
            for item in json.loads(self.body)["objects"]
        ]  # fmt: skip
        self.respond(200, {"transfer": "basic", "objects": objects})

    def create_commit(self, repository: Repository) -> None:
        files = {}
        for record in map(json.loads, self.body.splitlines()):
            value = record["value"]
            if record["key"] == "header":
                self.hub.commit_messages.append(value["summary"])
            elif record["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif record["key"] == "lfsFile":
                if value["oid"] not in self.hub.stored:
                    raise HubError(400, "", f"LFS pointer to {value['oid']}, which was not uploaded")
                files[value["path"]] = self.hub.stored[value["oid"]]
        sha = repository.commit(files)
        self.respond(200, {
            "success": True, "commitOid": sha, "hookOutput": "",
            "commitUrl": f"{self.hub.address}/{repository.name}/commit/{sha}",
        })  # fmt: skip

    # --- HTTP

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def respond(self, status: int, record: Any, headers: dict[str, str] | None = None) -> None:
        """Send JSON, or bytes in the requested range."""
        body = record if isinstance(record, bytes) else b"" if record is None else json.dumps(record).encode()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted and isinstance(record, bytes) and status == 200:
            first, last = int(wanted[1]), min(int(wanted[2] or len(body)), len(body) - 1)
            status, headers = 206, (headers or {}) | {"Content-Range": f"bytes {first}-{last}/{len(body)}"}
            body = body[first : last + 1]
        self.send_response(status)
        kind = "application/octet-stream" if isinstance(record, bytes) else "application/json"
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def blob(content: bytes) -> str:
    """The Git object id of a file's content."""
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def tree(files: dict[str, bytes], folder: str, recursive: bool) -> list[dict[str, Any]]:
    """Entries below a folder, in the format of the Hub."""
    prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
    inside = {name: content for name, content in sorted(files.items()) if name.startswith(prefix)}
    if prefix and not inside:
        raise HubError(404, "EntryNotFound", f"{folder} does not exist")
    folders = {prefix + "/".join(parts[:depth]) for name in inside
               for parts in [name.removeprefix(prefix).split("/")] for depth in range(1, len(parts))}  # fmt: skip
    entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": name} for name in sorted(folders)]
    for name, content in inside.items():
        entry: dict[str, Any] = {"type": "file", "oid": blob(content), "size": len(content), "path": name}
        if name.endswith(LARGE):
            digest = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
        entries.append(entry)
    return [entry for entry in entries if recursive or "/" not in entry["path"].removeprefix(prefix)]


@contextlib.contextmanager
def serve_hub(port: int = 0) -> Iterator[Hub]:
    """Serve an empty hub on a free loopback port, or on a reserved one. After `hub.close()`, it cannot be reached."""
    hub = Hub()
    server = Server(Handler, port, hub=hub)
    hub.address = f"http://127.0.0.1:{server.port}"
    with contextlib.ExitStack() as running:
        running.enter_context(running_server(server))
        running.callback(hub.stopping.set)
        hub.close = running.close
        yield hub
