"""HTTP with bounds: bytes, redirects, tries and time, and TLS, proxy and credentials as pip's settings say."""

from __future__ import annotations

import base64
import hashlib
import http.client
import netrc
import re
import ssl
import time
import urllib.error
import urllib.request
import zlib
from email.message import Message
from pathlib import Path
from threading import Lock
from typing import IO, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from envdoctor.errors import BadInput
from envdoctor.facts.environment import redact
from envdoctor.facts_check.connections import Hosts, PlainHandler, SecureHandler
from envdoctor.sources import Sources

TRIES = 3  # the first and two more
REDIRECTS = 5
WAIT_SECONDS = 10.0  # without a byte, where pip's settings name no timeout
AGAIN = {408, 425, 429, 500, 502, 503, 504}
PIECE = 1 << 16
# A Python that was not built for this distribution looks for certificates where there are none.
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")


class Unanswered(Exception):  # noqa: N818  what the index did not tell, and why
    """A question that the index did not answer; `status` is its HTTP status where there was one."""

    def __init__(self, reason: str, *, status: int = 0, again: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.again = again


class Answer(NamedTuple):
    """A body and where it came from in the end."""

    url: str
    status: int
    headers: Message
    body: bytes


class _Stay(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the caller: each may lead to a host with other credentials and other trust."""

    def redirect_request(  # noqa: PLR0917  urllib's own signature
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow nothing."""


class Web:
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

    def know(self, url: str) -> str:
        """Keep the user and password of an address for its host, and give the address without them."""
        parts = urlsplit(url)
        user, has_user, host = parts.netloc.rpartition("@")
        if has_user:
            self._credentials[host] = _basic(*[unquote(part) for part in (*user.split(":", 1), "")[:2]])
        elif (login := _login_of(parts.hostname or "")) is not None:
            self._credentials[host] = _basic(*login)
        return urlunsplit(parts._replace(netloc=host))

    def get(self, url: str, *, limit: int, accept: str = "", span: str = "") -> Answer:
        """What lies at an address, at most `limit` bytes of it; `span` is a range, "0-99" or "-100"."""
        for left in reversed(range(TRIES)):
            try:
                return self._follow(url, limit, accept, span)
            except Unanswered as failure:
                pause = 0.2 * (TRIES - left)
                if not failure.again or not left or time.monotonic() + pause > self.end:
                    raise
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _follow(self, url: str, limit: int, accept: str, span: str) -> Answer:
        for _ in range(REDIRECTS + 1):
            answer = self._ask(url, limit, accept, span)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            target = urljoin(url, answer.headers.get("Location", ""))
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                raise Unanswered(f"{redact('', url)} leads from https to {urlsplit(target).scheme or 'nowhere'}")
            url = target
        raise Unanswered(f"{redact('', url)}: more than {REDIRECTS} redirects")

    def _ask(self, url: str, limit: int, accept: str, span: str) -> Answer:
        told = redact("", url)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Unanswered(f"{told} is no address on the web (http or https)")
        headers = {"User-Agent": "envdoctor", "Accept": accept or "*/*"}
        headers |= {"Range": f"bytes={span}", "Accept-Encoding": "identity"} if span else {"Accept-Encoding": "gzip"}
        if parts.netloc in self._credentials:
            headers["Authorization"] = self._credentials[parts.netloc]
        opener = self._openers[bool(self._trusted & {parts.netloc, parts.hostname})]
        left = self.end - time.monotonic()
        if left <= 0:
            raise Unanswered("the time for this run was over")
        with self._lock:
            self.requests += 1
        try:
            request = urllib.request.Request(url, headers=headers)  # noqa: S310  the scheme was looked at above
            with opener.open(request, timeout=min(self._wait, left)) as response:
                body = self._read(response, limit, told)
                return Answer(url, response.status, response.headers, body)
        except urllib.error.HTTPError as error:
            with error:
                if 300 <= error.code < 400:
                    return Answer(url, error.code, error.headers, b"")
                reason = f"{told} answers {error.code} {http.client.responses.get(error.code, '')}".rstrip()
                raise Unanswered(reason, status=error.code, again=error.code in AGAIN) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            told_cause = _in_words(error, min(self._wait, left))
            # A certificate that is not trusted now is not trusted in a moment.
            again = not isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)
            raise Unanswered(f"{told} does not answer ({told_cause})", again=again) from error

    def _read(self, response: http.client.HTTPResponse, limit: int, told: str) -> bytes:
        promised = response.headers.get("Content-Length", "")
        if promised.isdigit() and int(promised) > limit:
            raise Unanswered(f"{told} would send {promised} bytes, expected at most {limit}")
        body = b""
        while piece := response.read1(PIECE):
            body += piece
            if len(body) > limit:
                raise Unanswered(f"{told} sends more than {limit} bytes")
            if time.monotonic() > self.end:
                raise Unanswered(f"{told} was still sending when the time for this run was over")
        with self._lock:
            self.bytes += len(body)
        if promised.isdigit() and len(body) < int(promised):
            raise Unanswered(f"{told} sent {len(body)} of {promised} bytes", again=True)
        return _inflate(body, limit, told) if response.headers.get("Content-Encoding", "") == "gzip" else body


def verified(data: bytes, sha256: str, told: str) -> bytes:
    """Bytes whose hash is what the index promised; an empty hash promises nothing."""
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise Unanswered(f"{told}: its sha256 is not the one that the index names")
    return data


def _inflate(body: bytes, limit: int, told: str) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise Unanswered(f"{told} is not the gzip that it says it is", again=True) from error
    if len(plain) > limit:
        raise Unanswered(f"{told} unpacks to more than {limit} bytes")
    if not stream.eof:
        raise Unanswered(f"{told} ends in the middle", again=True)
    return plain


def _in_words(error: Exception, waited: float) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"nothing within {waited:.0f} s"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return redact("", str(text)).splitlines()[0]


def _opener(sources: Sources, hosts: Hosts, *, trust: bool) -> urllib.request.OpenerDirector:
    if re.match(r"socks\w*://", sources.proxy):
        raise BadInput(
            f"proxy {redact('', sources.proxy)} ({sources.origins.get('proxy', 'pip')})",
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
