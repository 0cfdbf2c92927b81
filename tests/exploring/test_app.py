"""The application over real HTTP: the command line's JSON, one-line errors, and a flood that leaves nothing behind."""

import asyncio
import functools
import json
import logging
import socket
import struct
import threading

import httpx
import pytest
import uvicorn
from tests.cli.invoke import run
from tests.exploring.served import LONG, RUN

import filet
from filet.exploring.app import MOST_BYTES, Answering
from filet.exploring.limiter import RequestLimiter
from filet.exploring.views import QUESTIONS

pytestmark = pytest.mark.long
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in RUN.items()]


def refused(answer, status):
    """The one line of a refusal."""
    assert answer.status_code == status, answer.text
    text = answer.json()["error"]
    assert "\n" not in text
    assert len(text) < 600
    return text


def test_the_answer_is_the_command_lines_json(server):
    assert server.ask("epsilon", RUN).json() == json.loads(run("epsilon", *OPTIONS, "--json").stdout)


def test_lines_bring_parts_first_and_the_same_answer_last(server):
    answer = server.ask("epsilon", RUN, headers={"accept": "application/x-ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    first, last = map(json.loads, answer.text.splitlines())
    assert first["part"]["epsilon"] == last["result"]["epsilon"]
    assert last == server.ask("epsilon", RUN).json()


def test_an_infinite_epsilon_is_a_string_as_on_the_command_line(server):
    assert server.ask("epsilon", {**RUN, "noise_multiplier": 0}).json()["result"]["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"max_batch_size": 0}, "max_batch_size", "max_batch_size=0 is below 1; pass the number of rows"),
        ({"dataset_size": "abc"}, "dataset_size", "dataset_size='abc' is not an integer"),
        ({"poisson_batch_size": 1e9}, "poisson_batch_size", "is not in (0, 60000]"),
        ({"delta": 2}, "delta", "delta=2.0 is not in (0, 1)"),
        ({"noise_multiplier": -1}, "noise_multiplier", "is negative"),
        ({"adjacency": "other"}, "adjacency", "pass one of 'add-remove'"),
        ({"steps": 1.5}, "steps", "steps=1.5 is not an integer"),
        ({"steps": 10**30}, "steps", "above 2**63 - 1"),
        ({"size": "secret"}, "size", "size='secret' is for overflow='reject'"),
        ({"misspelt": 1}, None, "unknown key 'misspelt'"),
    ],
)
def test_a_bad_value_is_refused_in_the_librarys_words_with_its_field(server, change, field, words):
    answer = server.ask("epsilon", {**RUN, **change})
    assert words in refused(answer, 400)
    assert answer.json()["field"] == field


@pytest.mark.parametrize("view", sorted(QUESTIONS))
def test_every_question_refuses_nonsense_with_one_line(server, view):
    for given in ({}, {"dataset_size": [1, 2]}, {"dataset_size": None, "delta": {}}, {"max_batch_size": "\n\n"}):
        answer = server.ask(view, given)
        refused(answer, answer.status_code)
        assert answer.status_code in (400, 422)


def test_a_target_that_nothing_meets_is_not_a_bad_request(server):
    given = {name: value for name, value in RUN.items() if name != "noise_multiplier"}
    assert "cannot be met" in refused(server.ask("calibrate", {**given, "epsilon": 1.0, "analysis": "union"}), 422)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"text"', b"NaN", b'{"dataset_size": NaN}', b'{"delta": Infinity}', b"\xff\xfe", b"[" * 10_000,
             b'{"steps": ' + b"9" * 5_000 + b"}"]
)  # fmt: skip
def test_what_is_not_a_json_object_is_refused(server, body):
    headers = {"content-type": "application/json"}
    refused(httpx.post(f"{server.url}api/epsilon", content=body, headers=headers), 400)


def test_a_number_beyond_floats_is_refused(server):
    body = json.dumps(RUN).replace("1e-05", "1e-999").encode()
    headers = {"content-type": "application/json"}
    assert "delta=0.0" in refused(httpx.post(f"{server.url}api/epsilon", content=body, headers=headers), 400)


def test_a_huge_body_is_refused_before_it_has_come(server):
    def endless():
        for _ in range(10_000):
            yield b"x" * 4096

    headers = {"content-type": "application/json"}
    try:
        answer = httpx.post(f"{server.url}api/epsilon", content=endless(), headers=headers)
        assert str(MOST_BYTES) in refused(answer, 413)
    except httpx.WriteError:  # the connection was closed on us in the middle
        pass
    refused(httpx.post(f"{server.url}api/epsilon", content=b"x" * (MOST_BYTES + 1), headers=headers), 413)


def test_other_content_types_and_methods_are_refused(server):
    refused(
        httpx.post(f"{server.url}api/epsilon", content=json.dumps(RUN), headers={"content-type": "text/plain"}), 415
    )
    refused(httpx.get(f"{server.url}api/epsilon"), 405)
    refused(httpx.put(f"{server.url}api/epsilon", json=RUN), 405)
    refused(httpx.delete(server.url), 405)
    refused(server.ask("nothing", RUN), 404)


@pytest.mark.parametrize(
    "path", ["../app.py", "..%2fapp.py", "/etc/passwd", "%2e%2e/%2e%2e/__init__.py", "assets/main.js", "main.js/"]
)
def test_nothing_but_the_pages_files_can_be_read(server, path):
    host, port = server.url[7:-1].split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404")


def test_other_hosts_and_pages_are_refused(server):
    assert httpx.get(server.url, headers={"host": "evil.example"}).status_code == 421
    assert (
        httpx.post(f"{server.url}api/epsilon", json=RUN, headers={"origin": "http://evil.example"}).status_code == 403
    )


def test_the_page_and_all_that_it_names_are_there(server):
    page = httpx.get(server.url)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name, kind in (("main.js", "text/javascript"), ("style.css", "text/css"), ("icon.svg", "image/svg+xml")):
        answer = httpx.get(server.url + name)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        assert "content-security-policy" in answer.headers


LINES = {"accept": "application/x-ndjson"}


def test_the_page_offers_the_librarys_words(server):
    offered = httpx.get(f"{server.url}choices.json").json()
    assert offered == {"size": [*filet.Size], "overflow": [*filet.Overflow], "adjacency": [*filet.Adjacency]}


def test_a_newer_question_of_the_same_slot_ends_the_older_one(server):
    slot = {"filet-slot": "page.plan"}
    older = httpx.stream("POST", f"{server.url}api/plan", json=LONG, headers={**LINES, **slot}, timeout=180)
    with older as answer:
        lines = answer.iter_lines()
        assert "share" in next(lines)
        newer = server.ask("plan", {**LONG, "max_batch_size": 300}, headers=slot)
        *_, last = lines
    assert "newer question" in json.loads(last)["error"]
    assert newer.status_code == 200


def test_a_reader_who_leaves_stops_the_work(server):
    with httpx.stream("POST", f"{server.url}api/plan", json=LONG, headers=LINES, timeout=180) as answer:
        lines = answer.iter_lines()  # kept: whoever drops it has left
        assert "share" in next(lines)
        before = server.workers()
    assert server.replaces(before)  # the process of the plan


class Waiting:
    """A view that waits for ever, and an answer to it."""

    def __init__(self, limiter, slot=None):
        self.begun, self.ended = asyncio.Event(), False
        self.left = asyncio.Event()
        self.sent = []
        admit = functools.partial(limiter.admit, "plan", 1, slot)
        self.answering = asyncio.create_task(
            Answering(self.view(), admit, False)({"type": "http"}, self.receive, self.send)
        )

    async def view(self):
        try:
            self.begun.set()
            await asyncio.Event().wait()
            yield {}
        finally:
            self.ended = True

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)


def test_limits_superseded_work_and_readers_who_leave_end_a_view_by_themselves():
    async def main():
        limiter = RequestLimiter()
        older = Waiting(limiter, "slot")
        await older.begun.wait()
        newer = Waiting(limiter, "slot")
        await newer.begun.wait()
        await older.answering
        assert older.ended
        assert older.sent[0]["status"] == 409
        refused = Waiting(limiter)
        await refused.answering
        assert refused.sent[0]["status"] == 503
        assert not refused.begun.is_set()
        newer.left.set()
        await newer.answering
        assert newer.ended
        assert newer.sent == []
        assert limiter.open == 0

    asyncio.run(main())


def test_a_reader_who_is_cut_off_in_a_burst_of_parts_leaves_no_line_in_the_log(caplog):
    """Parts that follow each other without a pause are not written to a connection that has failed."""
    gone = threading.Event()
    ended = asyncio.Event()

    async def burst(ask, given):
        yield {"part": 0}
        gone.wait(60)  # the loop is held: it cannot hear of the end before the burst
        for number in range(1, 100):
            yield {"part": number}

    async def answer(scope, receive, send):
        await Answering(burst(None, {}), lambda work: None, True)(scope, receive, send)
        ended.set()

    async def main():
        config = uvicorn.Config(answer, log_level=logging.WARNING, lifespan="off")
        server = uvicorn.Server(config)
        listening = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        reading = asyncio.get_running_loop().run_in_executor(None, reader, listening.getsockname())
        await reading
        await ended.wait()
        server.should_exit = True
        await serving

    def reader(address):
        with socket.create_connection(address) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            seen = b""
            while b'"part": 0' not in seen:
                seen += connection.recv(4096)
            cut = struct.pack("ii", 1, 0)  # no farewell: the other side's next writes fail
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, cut)
        gone.set()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.messages == []


def test_two_hundred_questions_at_once_are_answered_or_refused_and_leave_nothing_behind(server):
    async def main():
        # No connection twice: the server may close an idle one at the moment in which it is used again.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=180, limits=limits) as client:
            runs = [{**RUN, "steps": 1_000 + number, "overflow": "reject"} for number in range(200)]
            answers = await asyncio.gather(*(client.post(f"{server.url}api/batch-sizes", json=run) for run in runs))
            plans = {asyncio.create_task(client.post(f"{server.url}api/plan", json=LONG)) for _ in range(200)}
            point = await client.post(f"{server.url}api/epsilon", json=RUN)  # while plans are under way
            done, waiting = set(), plans
            while len(waiting) > 4:  # four plans may be open
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done = plans - waiting
            for plan in waiting:
                plan.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            short = {**LONG, "max_batch_size": 300}
            last = await client.post(f"{server.url}api/plan", json=short)
            while last.status_code == 503:  # until the server has seen that the others have left
                last = await client.post(f"{server.url}api/plan", json=short)
            statuses = [answer.status_code for answer in answers], [plan.result().status_code for plan in done]
            return *statuses, point.status_code, last.status_code

    before = server.workers()
    answers, plans, point, last = asyncio.run(main())
    assert set(answers) == {200, 503}
    assert answers.count(200) >= 64
    assert plans.count(503) >= 190  # refused, not kept waiting
    assert (point, last) == (200, 200)
    assert len(server.workers()) == len(before)
    assert server.ask("epsilon", RUN).json()["result"]["epsilon"] < 2.825
