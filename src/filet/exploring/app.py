"""The web application: the page's files, and an API with the answers of `--json`.

`POST /api/NAME` takes a JSON object with the keys of a run file. It answers with one JSON object;
or, if the request accepts `application/x-ndjson`, with lines: parts as they are computed, and the
same object last. An error is `{"error": one line}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
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
from ..errors import InvalidArgumentError
from .limiter import BusyError, RequestLimiter, SupersededError
from .pool import Pool, TaskError
from .protection import Protection
from .views import CHOICES, QUESTIONS

MOST_BYTES = 16 * 1024  # of a question
_SECONDS = 10.0  # that a question may take to arrive
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
}
_STATUS = {
    "invalid": 400,
    "superseded": 409,
    "unanswered": 422,
    "failed": 500,
    "busy": 503,
    "lost": 503,
}
STREAM = "application/x-ndjson"


def make_app(pool: Pool, hosts: Iterable[str]) -> Starlette:
    """The application; `hosts` are the names under which it answers."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        pool.start()
        try:
            yield
        finally:
            pool.stop()

    files = _files()
    limiter = RequestLimiter()

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "") or "index.html"
        if name.startswith("api/"):
            raise HTTPException(405, "questions are asked by POST, as a JSON object", {"allow": "POST"})
        if name not in files:
            raise HTTPException(404, f"there is no {_checks.show(name)} here")
        return Response(files[name], media_type=_TYPES.get(name.rsplit(".", 1)[-1], "application/octet-stream"))

    async def question(request: Request) -> Response:
        return await _answer(request, pool, limiter)

    return Starlette(
        routes=[Route("/api/{name}", question, methods=["POST"]), Route("/{name:path}", page, methods=["GET"])],
        middleware=[Middleware(Protection, hosts=tuple(hosts))],
        exception_handlers={HTTPException: _refused, ClientDisconnect: _gone},
        lifespan=lifespan,
    )


def _files() -> dict[str, bytes]:
    """Every file that may be served, by its path; nothing else can be asked for."""

    def walk(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from walk(entry, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, entry.read_bytes()

    files = dict(walk(resources.files(__package__) / "assets", ""))
    return {**files, "choices.json": json.dumps(CHOICES).encode()}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _answer(request: Request, pool: Pool, limiter: RequestLimiter) -> Response:
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
        return _failure(str(error), "invalid")
    slot = request.headers.get("filet-slot", "")[:100] or None
    parts = STREAM in request.headers.get("accept", "")
    admit = functools.partial(limiter.admit, name, asked.most, slot)
    return Answering(asked.view(pool.ask, given), admit, parts)


async def _body(request: Request) -> bytes:
    """The body: refused if it is long or late."""
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


def _failure(message: str, kind: str) -> JSONResponse:
    """An error as one line, and the key that it is about."""
    text = " ".join(message.split())
    headers = {"retry-after": "1"} if kind == "busy" else None
    return JSONResponse({"error": text, "field": _field(text)}, _STATUS[kind], headers)


def _field(text: str) -> str | None:
    """The key that a message of the library begins with."""
    first = text.replace("=", " ").split(" ", 1)[0].strip(":'")
    keys = {key for question in QUESTIONS.values() for key in question.keys}
    return first if first in keys else None


class Answering(Response):
    """The parts of a view as they come, or its answer alone.

    The view ends when the reader goes, or when the limiter cancels it for a newer request.
    """

    def __init__(
        self,
        view: AsyncIterator[dict[str, Any]],
        admit: Callable[[asyncio.Task[None]], None],
        parts: bool,
    ) -> None:
        super().__init__()
        self._view = view
        self._admit = admit
        self._parts = parts
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        working = asyncio.create_task(self._work(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            self._admit(working)
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if working.cancelled():
                raise SupersededError("a newer question of the same slot has taken this one's place")
            if working.done():
                working.result()
        except (TaskError, BusyError, SupersededError) as error:
            failure = _failure(str(error), error.kind)
            if self._started:
                line = bytes(failure.body) + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": False})
            else:
                await failure(scope, receive, send)
        finally:
            leaving.cancel()
            working.cancel()
            await asyncio.wait({working, leaving})

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
            # Parts may come without a pause. If the reader has gone, the connection must hear of it before the next one.
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Return when the reader has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
