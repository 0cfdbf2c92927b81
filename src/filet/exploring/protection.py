"""Protection against other web sites: own host only, no cross-site requests, strict headers."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing is loaded but from here: no inline script or style, no other host, no frame around the
# page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)


def loopback_hosts(port: int) -> tuple[str, ...]:
    """The names under which this machine's own browser may ask for the page.

    >>> loopback_hosts(8765)
    ('127.0.0.1:8765', 'localhost:8765', '[::1]:8765')
    """
    return tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


class Protection:
    """Refusal of requests to another host (a rebound name), from another origin or another site.

    All answers get the headers.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets here
        guarded = _with_headers(send)
        refused = self._refusal(scope["headers"])
        if refused is None:
            await self._app(scope, receive, guarded)
            return
        status, text = refused
        kind = [(b"content-type", b"text/plain; charset=utf-8")]
        await guarded({"type": "http.response.start", "status": status, "headers": kind})
        await guarded({"type": "http.response.body", "body": text.encode() + b"\n"})

    def _refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        given: MutableMapping[str, list[str]] = {}
        for name, value in headers:
            given.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = [host.lower() for host in given.get("host", [])]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return (
                421,
                "filet: this page answers only to this machine's own address; open the one that filet explore printed",
            )
        if any(origin not in self._origins for origin in given.get("origin", [])):
            return 403, "filet: requests from other pages are refused"
        if any(site not in ("same-origin", "none") for site in given.get("sec-fetch-site", [])) and _is_background(
            given
        ):
            return 403, "filet: requests from other sites are refused"
        return None


def _is_background(given: MutableMapping[str, list[str]]) -> bool:
    """True if a script or an element asks; a person who follows a link navigates."""
    return given.get("sec-fetch-mode", [""]) != ["navigate"]


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            own: list[Any] = [pair for pair in message["headers"] if pair[0].lower() != b"server"]
            message = {**message, "headers": [*own, *HEADERS]}
        await send(message)

    return guarded
