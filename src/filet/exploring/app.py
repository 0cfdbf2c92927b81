"""The web application: the page's files, and an API whose answers have the shape of the command line's `--json`.

`POST /api/NAME` takes a JSON object with the keys of a run file. It answers with one JSON object; or, if the request accepts
`application/x-ndjson`, with lines: parts as they are computed, and the same object last. An error is `{"error": one line}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .. import _checks
from ..errors import FiletError, InvalidArgumentError
from .desk import BusyError, Desk, SupersededError
from .pool import Pool, TaskError
from .protection import Protection
from .views import QUESTIONS

MOST_BYTES = 16 * 1024  # of a question
_SECONDS = 10.0  # in which a question must have arrived
_TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
          "svg": "image/svg+xml", "json": "application/json", "txt": "text/plain; charset=utf-8"}  # fmt: skip
_STATUS = {"invalid": 400, "unanswered": 422, "cancelled": 409, "lost": 503, "failed": 500}
STREAM = "application/x-ndjson"
Place = contextlib.AbstractContextManager[asyncio.Future[None]]


def make_app(pool: Pool, hosts: Iterable[str]) -> Starlette:
    """The application; `hosts` are the names under which it answers."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        pool.start()
        try:
            yield
        finally:
            await pool.close()

    files, desk = _files(), Desk()

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "") or "index.html"
        if name.startswith("api/"):
            raise HTTPException(405, "questions are asked by POST, as a JSON object", {"allow": "POST"})
        if name not in files:
            raise HTTPException(404, f"there is no {_checks.show(name)} here")
        return Response(files[name], media_type=_TYPES.get(name.rsplit(".", 1)[-1], "application/octet-stream"))

    async def question(request: Request) -> Response:
        return await _answer(request, pool, desk)

    app = Starlette(
        routes=[Route("/api/{name}", question, methods=["POST"]), Route("/{name:path}", page, methods=["GET"])],
        middleware=[Middleware(Protection, hosts=tuple(hosts))],
        exception_handlers={HTTPException: _refused, ClientDisconnect: _gone},
        lifespan=lifespan,
    )
    app.state.desk, app.state.pool = desk, pool
    return app


def _files() -> dict[str, bytes]:
    """Every file that may be served, by its path; nothing else can be asked for."""

    def walk(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from walk(entry, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, entry.read_bytes()

    return dict(walk(resources.files(__package__) / "assets", ""))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _answer(request: Request, pool: Pool, desk: Desk) -> Response:
    name = request.path_params["name"]
    if name not in QUESTIONS:
        raise HTTPException(404, f"there is no question {_checks.show(name)}; ask one of {', '.join(QUESTIONS)}")
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "a question is a JSON object; send it with the content type application/json")
    given = _parsed(await _body(request))
    asked = QUESTIONS[name]
    try:
        _checks.no_unknown_keys("the question", given, asked.keys)
    except InvalidArgumentError as error:
        return _failure(error)
    slot = request.headers.get("filet-slot", "")[:100] or None
    parts = STREAM in request.headers.get("accept", "")
    return Answering(asked.view(pool.ask, given), desk.question(name, asked.most, slot), parts)


async def _body(request: Request) -> bytes:
    """The body, which must be short and must come soon."""
    body = b""
    try:
        async with asyncio.timeout(_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise HTTPException(413, f"a question has at most {MOST_BYTES} bytes; send the keys of one run")
    except TimeoutError:
        raise HTTPException(408, f"the question did not arrive within {_SECONDS:g} seconds; send it again") from None
    return body


def _parsed(body: bytes) -> Mapping[str, Any]:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not a JSON number")

    try:
        given = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise HTTPException(400, f"the question is not valid JSON ({reason}); send one JSON object") from None
    if not isinstance(given, dict):
        raise HTTPException(400, f"the question {_checks.show(given)} is not a JSON object; send the keys of a run")
    return given


def _failure(error: FiletError) -> JSONResponse:
    """An error as one line, and the key that it is about."""
    text = " ".join(str(error).split())
    headers = {"retry-after": "1"} if isinstance(error, BusyError) else None
    kind = getattr(error, "kind", None) or ("invalid" if isinstance(error, InvalidArgumentError) else "")
    status = 503 if isinstance(error, BusyError) else 409 if isinstance(error, SupersededError) else _STATUS[kind]
    return JSONResponse({"error": text, "field": _field(text)}, status, headers)


def _field(text: str) -> str | None:
    """The key that a message of the library begins with."""
    first = text.replace("=", " ").split(" ", 1)[0].strip(":'")
    keys = {key for question in QUESTIONS.values() for key in question.keys}
    return first if first in keys else None


class Answering(Response):
    """Sends a view's parts as they come, or its answer alone; stops the view when the reader goes or a newer question comes."""

    def __init__(self, view: AsyncIterator[dict[str, Any]], place: Place, parts: bool) -> None:
        super().__init__()
        self._view, self._place, self._parts = view, place, parts
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._place as superseded:
                working = asyncio.ensure_future(self._work(send))
                leaving = asyncio.ensure_future(_left(receive))
                try:
                    ends: set[asyncio.Future[None]] = {working, leaving, superseded}
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    taken = superseded.done()
                finally:
                    leaving.cancel()
                    if not working.done():
                        working.cancel()
                    await asyncio.wait({working})
            if not working.cancelled():
                working.result()
            elif taken:
                raise SupersededError("a newer question of the same slot has taken this one's place")
        except (TaskError, BusyError, SupersededError) as error:
            await self._fail(error, scope, receive, send)

    async def _fail(self, error: FiletError, scope: Scope, receive: Receive, send: Send) -> None:
        failure = _failure(error)
        if not self._started:
            await failure(scope, receive, send)
            return
        await send({"type": "http.response.body", "body": bytes(failure.body) + b"\n", "more_body": False})

    async def _work(self, send: Send) -> None:
        async for part in self._view:
            if "part" in part and not self._parts:
                continue
            if not self._started:
                self._started = True
                kind = STREAM if self._parts else "application/json"
                headers = [(b"content-type", kind.encode())]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            line = json.dumps(part, allow_nan=False).encode() + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Return when the reader has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
