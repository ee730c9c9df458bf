"""HTTP client with limits on bytes, redirects, retries and time; TLS, proxy and credentials from pip's settings."""

from __future__ import annotations

import base64
import hashlib
import http.client
import netrc
import os
import re
import ssl
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from contextlib import closing
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from envdoctor.core.errors import BadInput
from envdoctor.download.connections import KEEP_ALIVE, CachingResolver, ConnectionHandler
from envdoctor.download.sources import Sources
from envdoctor.redact.variables import redact_variable

ATTEMPTS = 3
MAX_REDIRECTS = 5
TIMEOUT_SECONDS = 10.0  # without a byte, where pip's settings have no timeout
REDIRECT_STATUS = {301, 302, 303, 307, 308}
RETRY_STATUS = {408, 425, 429, 500, 502, 503, 504}
CHUNK = 1 << 16
# The certificates of the distribution: a Python built elsewhere may look in a directory that does not exist.
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")


class RequestFailed(Exception):  # noqa: N818
    """A request that failed; `status` is the HTTP status, 0 without one.

    `retry`: another attempt may succeed; `wait`: the seconds that the server requests before it.
    """

    def __init__(self, reason: str, *, status: int = 0, retry: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.retry = retry
        self.wait = wait


class Response(NamedTuple):
    """A response with its body; `url` is the URL after redirects."""

    url: str
    status: int
    headers: Message
    body: bytes


class Stream:
    """A response whose body is read in chunks. Raises RequestFailed on a timeout or a lost connection."""

    def __init__(self, response: http.client.HTTPResponse, url: str, timeout: float) -> None:
        self.url = url
        self.redacted_url = redacted_url(url)
        self.status: int = response.status
        self.headers: Message = response.headers
        self._response = response
        self._timeout = timeout

    @property
    def content_length(self) -> int | None:
        """The length of the body in bytes; None where the server does not state it."""
        length = self.headers.get("Content-Length", "")
        return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes; empty at the end."""
        try:
            return self._response.read1(size)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RequestFailed(
                f"{self.redacted_url} does not respond ({_describe_error(error, self._timeout)})", retry=True
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self._response.close()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Disables urllib's redirects: another host may need other credentials and certificates, see HttpClient.open."""

    def redirect_request(  # noqa: PLR0917  urllib's own signature
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Return no redirected request."""


class HttpClient:
    """HTTP client for package sources. Threads may share it; `end` is a deadline of time.monotonic()."""

    def __init__(self, sources: Sources, *, end: float) -> None:
        self.end = end
        self.requests = 0
        self.bytes = 0
        self._lock = Lock()
        self._timeout = float(sources.timeout or TIMEOUT_SECONDS)
        self._trusted = set(sources.trusted_hosts)
        self._credentials: dict[str, str] = {}
        resolver = CachingResolver()
        self._openers = {trust: _opener(sources, resolver, trust=trust) for trust in (False, True)}

    def store_credentials(self, url: str) -> str:
        """Store the user and password of a URL for its host, and return the URL without them."""
        parts = urlsplit(url)
        user, has_user, host = parts.netloc.rpartition("@")
        if has_user:
            self._credentials[host] = _basic(*[unquote(partial) for partial in (*user.split(":", 1), "")[:2]])
        elif host not in self._credentials and (login := _login_of(parts.hostname or "")) is not None:
            self._credentials[host] = _basic(*login)
        return urlunsplit(parts._replace(netloc=host))

    def get(self, url: str, *, limit: int, accept: str = "", byte_range: str = "") -> Response:
        """Get at most `limit` bytes, with retries; `byte_range` is "0-99" or "-100"."""
        for left in reversed(range(ATTEMPTS)):
            try:
                return self._get(url, limit, accept, byte_range)
            except RequestFailed as failure:
                pause = 0.2 * (ATTEMPTS - left)
                if not failure.retry or not left or time.monotonic() + pause > self.end:
                    raise
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def open(self, url: str, headers: Mapping[str, str]) -> Stream:
        """Send a request and follow redirects. The caller reads and closes the stream."""
        for _ in range(MAX_REDIRECTS + 1):
            result = self._send(url, headers)
            if isinstance(result, Stream):
                return result
            target = urljoin(url, result)
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                raise RequestFailed(
                    f"{redacted_url(url)} redirects from https to {urlsplit(target).scheme or 'no scheme'}"
                )
            url = target
        raise RequestFailed(f"{redacted_url(url)}: more than {MAX_REDIRECTS} redirects")

    def is_trusted_host(self, url: str) -> bool:
        """Whether pip's trusted-host contains the host of a URL, with or without its port."""
        parts = urlsplit(url)
        return bool(self._trusted & {parts.netloc.rpartition("@")[2], parts.hostname or ""})

    def _get(self, url: str, limit: int, accept: str, byte_range: str) -> Response:
        headers = {"Accept": accept or "*/*", **KEEP_ALIVE}
        headers |= {"Range": f"bytes={byte_range}"} if byte_range else {}
        headers["Accept-Encoding"] = "identity" if byte_range else "gzip"
        with closing(self.open(url, headers)) as stream:
            return Response(stream.url, stream.status, stream.headers, self._read(stream, limit))

    def _send(self, url: str, headers: Mapping[str, str]) -> Stream | str:
        """Send one request; return the response, or the target of a redirect."""
        shown_url = redacted_url(url)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestFailed(f"{shown_url} is not an http or https URL")
        headers = {"User-Agent": "envdoctor", **headers}
        if parts.netloc in self._credentials:
            headers["Authorization"] = self._credentials[parts.netloc]
        opener = self._openers[self.is_trusted_host(url)]
        left = self.end - time.monotonic()
        if left <= 0:
            raise RequestFailed("the deadline has passed")
        timeout = min(self._timeout, left)
        with self._lock:
            self.requests += 1
        try:
            request = urllib.request.Request(url, headers=headers)  # noqa: S310  the scheme was checked above
            return Stream(opener.open(request, timeout=timeout), url, timeout)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in REDIRECT_STATUS:
                    return str(error.headers.get("Location", ""))
                reason = f"{shown_url} returned {error.code} {http.client.responses.get(error.code, '')}".rstrip()
                pause = parse_retry_after(error.headers.get("Retry-After", ""), now=time.time())
                raise RequestFailed(
                    reason, status=error.code, retry=error.code in RETRY_STATUS, wait=pause
                ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            # A retry does not help against an untrusted certificate.
            retry = not isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)
            raise RequestFailed(
                f"{shown_url} does not respond ({_describe_error(error, timeout)})", retry=retry
            ) from error

    def _read(self, stream: Stream, limit: int) -> bytes:
        length = stream.content_length
        if length is not None and length > limit:
            raise RequestFailed(f"{stream.redacted_url} would send {length} bytes, expected at most {limit}")
        body = b""
        while chunk := stream.read(CHUNK):
            body += chunk
            if len(body) > limit:
                raise RequestFailed(f"{stream.redacted_url} sends more than {limit} bytes")
            if time.monotonic() > self.end:
                raise RequestFailed(f"{stream.redacted_url} was still sending at the deadline")
        with self._lock:
            self.bytes += len(body)
        if length is not None and len(body) < length:
            raise RequestFailed(f"{stream.redacted_url} sent {len(body)} of {length} bytes", retry=True)
        compressed = stream.headers.get("Content-Encoding", "") == "gzip"
        return _decompress(body, limit, stream.redacted_url) if compressed else body


def new_http_client(sources: Sources, *, end: float) -> HttpClient:
    """Return a client with the credentials of all configured sources."""
    client = HttpClient(sources, end=end)
    for url in (*sources.extra_indexes, sources.index, *sources.find_links):
        if "://" in url:
            client.store_credentials(_with_login(url))
    return client


def _with_login(index: str) -> str:
    """Return the URL of an index; for uv's named form `mirror=https://...`, with the login of uv's variables."""
    prefix = re.match(r"([\w.-]+)=(?=\w+://)", index)
    if not prefix:
        return index
    name = re.sub(r"\W", "_", prefix[1]).upper()
    user, password = (os.environ.get(f"UV_INDEX_{name}_{part}", "") for part in ("USERNAME", "PASSWORD"))
    scheme, _, rest = index[prefix.end() :].partition("://")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    return f"{scheme}://{login}{rest}"


def redacted_url(url: str) -> str:
    """Return a URL for messages: without user and password, and without the query, which may contain a signature."""
    return redact_variable("", re.sub(r"[?#].*", "", url, flags=re.DOTALL))


def parse_retry_after(text: str, *, now: float) -> float:
    """Parse `120` or `Sat, 21 Nov 2026 15:00:00 GMT` as seconds from `now` (seconds since 1970); else 0.0."""
    if re.fullmatch(r"[0-9]{1,6}", text.strip()):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0


def verify_sha256(data: bytes, sha256: str, what: str) -> bytes:
    """Return the data; raises RequestFailed where its SHA-256 differs. An empty hash is not checked."""
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise RequestFailed(f"{what}: its sha256 differs from the one in the index")
    return data


def _decompress(body: bytes, limit: int, where: str) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestFailed(f"{where} sent invalid gzip data", retry=True) from error
    if len(plain) > limit:
        raise RequestFailed(f"{where} decompresses to more than {limit} bytes")
    if not stream.eof:
        raise RequestFailed(f"{where} sent incomplete data", retry=True)
    return plain


def _describe_error(error: Exception, timeout: float) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"no response within {timeout:.0f} s"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return redact_variable("", str(text)).splitlines()[0]


def _opener(sources: Sources, resolver: CachingResolver, *, trust: bool) -> urllib.request.OpenerDirector:
    if re.match(r"socks\w*://", sources.proxy):
        raise BadInput(
            f"proxy {redact_variable('', sources.proxy)} ({sources.origins.get('proxy', 'pip')})",
            expected="an http:// or https:// proxy for this command",
            hint="export PIP_PROXY=http://proxy:3128",
        )
    proxies = {"http": sources.proxy, "https": sources.proxy} if sources.proxy else None
    opener = urllib.request.OpenerDirector()  # only http and https: an index may link to file: or ftp:
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.ProxyHandler(proxies),
        ConnectionHandler(resolver, partial(_context, sources, trust=trust)),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _NoRedirects(),
    ]
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _context(sources: Sources, *, trust: bool) -> ssl.SSLContext:
    """Return the TLS context of pip's settings; by default with the machine's certificates or SSL_CERT_FILE."""
    file = sources.cert
    try:
        if file:
            folder = file if Path(file).is_dir() else None
            context = ssl.create_default_context(cafile=None if folder else file, capath=folder)
        else:
            paths = ssl.get_default_verify_paths()
            found = next((bundle for bundle in BUNDLES if Path(bundle).is_file()), None)
            context = ssl.create_default_context(cafile=None if paths.cafile or paths.capath else found)
        if sources.client_cert:
            file = sources.client_cert
            context.load_cert_chain(sources.client_cert)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(
            f"cannot read certificates {file}: {error.strerror or error}",
            expected="a PEM file in pip's settings cert and client-cert",
            hint="pip config debug",
        ) from error
    if trust:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _login_of(host: str) -> tuple[str, str] | None:
    """Return user and password from ~/.netrc, which pip and uv also read."""
    try:
        login = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None
    return (login[0], login[2] or "") if login else None
