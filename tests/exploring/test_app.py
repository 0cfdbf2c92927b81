"""The application over real HTTP: the command line's JSON, one-line errors, and a flood that leaves nothing behind."""

import asyncio
import json
import socket

import httpx
import pytest
from tests.cli.invoke import run
from tests.exploring.served import RUN

from filet.exploring.app import MOST_BYTES
from filet.exploring.views import QUESTIONS

pytestmark = pytest.mark.long
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in RUN.items()]
LONG = {"dataset_size": 60_000, "steps": 14_000, "delta": 1e-5, "adjacency": "zero-out", "epsilon": 3.0,
        "max_batch_size": list(range(200, 400))}  # fmt: skip


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


def test_a_newer_question_of_the_same_slot_ends_the_older_one(server):
    async def main():
        async with httpx.AsyncClient(timeout=180) as client:
            headers = {"filet-slot": "page.plan"}
            older = asyncio.ensure_future(client.post(f"{server.url}api/plan", json=LONG, headers=headers))
            await asyncio.sleep(0.5)
            short = {**LONG, "max_batch_size": 300}
            newer = await client.post(f"{server.url}api/plan", json=short, headers=headers)
            return await older, newer

    older, newer = asyncio.run(main())
    assert "newer question" in refused(older, 409)
    assert newer.status_code == 200


def test_a_reader_who_leaves_stops_the_work(server):
    with httpx.stream(
        "POST", f"{server.url}api/plan", json=LONG, headers={"accept": "application/x-ndjson"}, timeout=180
    ) as answer:
        lines = answer.iter_lines()  # kept: whoever drops it has left
        assert "share" in next(lines)
        assert not server.idle()
        assert "share" in next(lines)
    assert server.becomes_idle()


def test_two_hundred_questions_at_once_are_answered_or_refused_and_leave_nothing_behind(server):
    async def main():
        # No connection twice: the server may close an idle one at the moment in which it is used again.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=180, limits=limits) as client:
            runs = [{**RUN, "steps": 1_000 + number, "overflow": "reject"} for number in range(200)]
            asked = [asyncio.ensure_future(client.post(f"{server.url}api/batch-sizes", json=run)) for run in runs]
            answers = await asyncio.gather(*asked)
            plans = [asyncio.ensure_future(client.post(f"{server.url}api/plan", json=LONG)) for _ in range(200)]
            point = await client.post(f"{server.url}api/epsilon", json=RUN)  # while plans are under way
            async with asyncio.timeout(50):
                while sum(plan.done() for plan in plans) < 196:  # four plans may be open
                    await asyncio.sleep(0.05)
            done = [plan.result().status_code for plan in plans if plan.done()]
            for plan in plans:
                plan.cancel()
            await asyncio.gather(*plans, return_exceptions=True)
            return [answer.status_code for answer in answers], done, point.status_code

    answers, plans, point = asyncio.run(main())
    assert set(answers) <= {200, 503}
    assert answers.count(200) >= 32
    assert set(plans) == {503}
    assert len(plans) == 196  # refused at once, not kept waiting
    assert point == 200
    assert server.becomes_idle()
    assert server.ask("epsilon", RUN).json()["result"]["epsilon"] < 2.825
