"""HTTP with bounds: bytes, redirects, tries and time, and TLS, proxy and credentials as pip's settings say."""

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
from pathlib import Path
from threading import Lock
from typing import IO, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from envdoctor.core.errors import BadInput
from envdoctor.download.connections import Hosts, PlainHandler, SecureHandler
from envdoctor.download.sources import Sources
from envdoctor.redact.variables import redact_variable

TRIES = 3  # the first and two more
REDIRECTS = 5
WAIT_SECONDS = 10.0  # without a byte, where pip's settings name no timeout
MOVED = {301, 302, 303, 307, 308}
AGAIN = {408, 425, 429, 500, 502, 503, 504}
PIECE = 1 << 16
# A Python that was not built for this distribution looks for certificates where there are none.
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")


class RequestFailed(Exception):  # noqa: N818  what the index did not tell, and why
    """A question that a server did not answer; `status` is its HTTP status where there was one.

    `again`: it may in a moment; `wait` is the time in seconds that the server asks for before that.
    """

    def __init__(self, reason: str, *, status: int = 0, again: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.again = again
        self.wait = wait


class Response(NamedTuple):
    """A body and where it came from in the end."""

    url: str
    status: int
    headers: Message
    body: bytes


class Stream:
    """A body on its way. A server that falls silent or goes away raises RequestFailed."""

    def __init__(self, response: http.client.HTTPResponse, url: str, waited: float) -> None:
        self.url = url
        self.redacted_url = redacted_url(url)
        self.status: int = response.status
        self.headers: Message = response.headers
        self._response = response
        self._waited = waited

    @property
    def promised(self) -> int | None:
        """Bytes of the body, where the server says so."""
        length = self.headers.get("Content-Length", "")
        return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None

    def read(self, size: int) -> bytes:
        """What has come, at most `size` bytes; empty at the end."""
        try:
            return self._response.read1(size)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RequestFailed(
                f"{self.redacted_url} does not respond ({_in_words(error, self._waited)})", again=True
            ) from error

    def close(self) -> None:
        """Ask for no more."""
        self._response.close()


class _Stay(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the caller: each may lead to a host with other credentials and other trust."""

    def redirect_request(  # noqa: PLR0917  urllib's own signature
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow nothing."""


class HttpClient:
    """Asks an index. Safe to share between threads; `end` is a time of time.monotonic()."""

    def __init__(self, sources: Sources, *, end: float) -> None:
        self.end = end
        self.requests = 0
        self.bytes = 0
        self._lock = Lock()
        self._wait = float(sources.timeout or WAIT_SECONDS)
        self._trusted = set(sources.trusted_hosts)
        self._credentials: dict[str, str] = {}
        hosts = Hosts()
        self._openers = {trust: _opener(sources, hosts, trust=trust) for trust in (False, True)}

    def store_credentials(self, url: str) -> str:
        """Keep the user and password of an address for its host, and give the address without them."""
        parts = urlsplit(url)
        user, has_user, host = parts.netloc.rpartition("@")
        if has_user:
            self._credentials[host] = _basic(*[unquote(partial) for partial in (*user.split(":", 1), "")[:2]])
        elif host not in self._credentials and (login := _login_of(parts.hostname or "")) is not None:
            self._credentials[host] = _basic(*login)
        return urlunsplit(parts._replace(netloc=host))

    def get(self, url: str, *, limit: int, accept: str = "", span: str = "") -> Response:
        """What lies at an address, at most `limit` bytes of it; `span` is a range, "0-99" or "-100"."""
        for left in reversed(range(TRIES)):
            try:
                return self._get(url, limit, accept, span)
            except RequestFailed as failure:
                pause = 0.2 * (TRIES - left)
                if not failure.again or not left or time.monotonic() + pause > self.end:
                    raise
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def open(self, url: str, headers: Mapping[str, str]) -> Stream:
        """The answer to one question, redirects followed; the caller reads and closes it."""
        for _ in range(REDIRECTS + 1):
            answer = self._ask(url, headers)
            if isinstance(answer, Stream):
                return answer
            target = urljoin(url, answer)
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                raise RequestFailed(f"{redacted_url(url)} leads from https to {urlsplit(target).scheme or 'nowhere'}")
            url = target
        raise RequestFailed(f"{redacted_url(url)}: more than {REDIRECTS} redirects")

    def is_trusted_host(self, url: str) -> bool:
        """Whether pip's trusted-host names the host of an address, with or without its port."""
        parts = urlsplit(url)
        return bool(self._trusted & {parts.netloc.rpartition("@")[2], parts.hostname or ""})

    def _get(self, url: str, limit: int, accept: str, span: str) -> Response:
        headers = {"Accept": accept or "*/*"}
        headers |= {"Range": f"bytes={span}", "Accept-Encoding": "identity"} if span else {"Accept-Encoding": "gzip"}
        with closing(self.open(url, headers)) as stream:
            return Response(stream.url, stream.status, stream.headers, self._read(stream, limit))

    def _ask(self, url: str, headers: Mapping[str, str]) -> Stream | str:
        """The answer, or the place that a redirect names."""
        named = redacted_url(url)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestFailed(f"{named} is no address on the client (http or https)")
        headers = {"User-Agent": "envdoctor", **headers}
        if parts.netloc in self._credentials:
            headers["Authorization"] = self._credentials[parts.netloc]
        opener = self._openers[self.is_trusted_host(url)]
        left = self.end - time.monotonic()
        if left <= 0:
            raise RequestFailed("the time for this run was over")
        wait = min(self._wait, left)
        with self._lock:
            self.requests += 1
        try:
            request = urllib.request.Request(url, headers=headers)  # noqa: S310  the scheme was looked at above
            return Stream(opener.open(request, timeout=wait), url, wait)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in MOVED:
                    return str(error.headers.get("Location", ""))
                reason = f"{named} answers {error.code} {http.client.responses.get(error.code, '')}".rstrip()
                pause = parse_retry_after(error.headers.get("Retry-After", ""), now=time.time())
                raise RequestFailed(reason, status=error.code, again=error.code in AGAIN, wait=pause) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            # A certificate that is not trusted now is not trusted in a moment.
            again = not isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)
            raise RequestFailed(f"{named} does not respond ({_in_words(error, wait)})", again=again) from error

    def _read(self, stream: Stream, limit: int) -> bytes:
        promised = stream.promised
        if promised is not None and promised > limit:
            raise RequestFailed(f"{stream.redacted_url} would send {promised} bytes, expected at most {limit}")
        body = b""
        while piece := stream.read(PIECE):
            body += piece
            if len(body) > limit:
                raise RequestFailed(f"{stream.redacted_url} sends more than {limit} bytes")
            if time.monotonic() > self.end:
                raise RequestFailed(f"{stream.redacted_url} was still sending when the time for this run was over")
        with self._lock:
            self.bytes += len(body)
        if promised is not None and len(body) < promised:
            raise RequestFailed(f"{stream.redacted_url} sent {len(body)} of {promised} bytes", again=True)
        packed = stream.headers.get("Content-Encoding", "") == "gzip"
        return _inflate(body, limit, stream.redacted_url) if packed else body


def new_http_client(sources: Sources, *, end: float) -> HttpClient:
    """The client with the credentials of every configured source."""
    client = HttpClient(sources, end=end)
    for url in (*sources.extra_indexes, sources.index, *sources.find_links):
        if "://" in url:
            client.store_credentials(_with_login(url))
    return client


def _with_login(index: str) -> str:
    """An index's address; of one that uv knows by a name (`mirror=https://...`), with the login of uv's variables."""
    named = re.match(r"([\w.-]+)=(?=\w+://)", index)
    if not named:
        return index
    name = re.sub(r"\W", "_", named[1]).upper()
    user, password = (os.environ.get(f"UV_INDEX_{name}_{what}", "") for what in ("USERNAME", "PASSWORD"))
    scheme, _, rest = index[named.end() :].partition("://")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    return f"{scheme}://{login}{rest}"


def redacted_url(url: str) -> str:
    """An address as it is shown: without user and password, and without its query, which may hold a signature."""
    return redact_variable("", re.sub(r"[?#].*", "", url, flags=re.DOTALL))


def parse_retry_after(text: str, *, now: float) -> float:
    """`120` or `Sat, 21 Nov 2026 15:00:00 GMT` as seconds from `now` (seconds since 1970); 0.0 for anything else."""
    if re.fullmatch(r"[0-9]{1,6}", text.strip()):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0


def verified(data: bytes, sha256: str, what: str) -> bytes:
    """Bytes whose hash is what the index promised; an empty hash promises nothing."""
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise RequestFailed(f"{what}: its sha256 is not the one that the index names")
    return data


def _inflate(body: bytes, limit: int, where: str) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestFailed(f"{where} is not the gzip that it says it is", again=True) from error
    if len(plain) > limit:
        raise RequestFailed(f"{where} unpacks to more than {limit} bytes")
    if not stream.eof:
        raise RequestFailed(f"{where} ends in the middle", again=True)
    return plain


def _in_words(error: Exception, waited: float) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"nothing within {waited:.0f} s"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return redact_variable("", str(text)).splitlines()[0]


def _opener(sources: Sources, hosts: Hosts, *, trust: bool) -> urllib.request.OpenerDirector:
    if re.match(r"socks\w*://", sources.proxy):
        raise BadInput(
            f"proxy {redact_variable('', sources.proxy)} ({sources.origins.get('proxy', 'pip')})",
            expected="an http:// or https:// proxy for this command",
            hint="export PIP_PROXY=http://proxy:3128",
        )
    proxies = {"http": sources.proxy, "https": sources.proxy} if sources.proxy else None
    opener = urllib.request.OpenerDirector()  # only http and https: no file:, no ftp:, whatever an index links to
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.ProxyHandler(proxies),
        PlainHandler(hosts),
        SecureHandler(hosts, _context(sources, trust=trust)),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Stay(),
    ]
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _context(sources: Sources, *, trust: bool) -> ssl.SSLContext:
    """TLS as pip has it configured; without a bundle of its own, the machine's, which SSL_CERT_FILE may name."""
    named = sources.cert
    try:
        if named:
            folder = named if Path(named).is_dir() else None
            context = ssl.create_default_context(cafile=None if folder else named, capath=folder)
        else:
            paths = ssl.get_default_verify_paths()
            found = next((bundle for bundle in BUNDLES if Path(bundle).is_file()), None)
            context = ssl.create_default_context(cafile=None if paths.cafile or paths.capath else found)
        if sources.client_cert:
            named = sources.client_cert
            context.load_cert_chain(sources.client_cert)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(
            f"certificates {named} cannot be read: {error.strerror or error}",
            expected="a file of certificates in PEM form, as pip's cert and client-cert name it",
            hint="pip config debug",
        ) from error
    if trust:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _login_of(host: str) -> tuple[str, str] | None:
    """User and password of ~/.netrc, which pip and uv take, too."""
    try:
        login = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None
    return (login[0], login[2] or "") if login else None
