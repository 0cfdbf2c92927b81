"""Protection: other hosts, other origins and other sites are refused, and every answer carries the policy."""

import asyncio

import pytest

from filet.exploring.protection import POLICY, Protection, loopback_hosts


async def welcome(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"server", b"x")]})
    await send({"type": "http.response.body", "body": b"hello"})


def status(**headers):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "headers": given}
    asyncio.run(Protection(welcome, loopback_hosts(8765))(scope, receive, send))
    answer = dict(sent[0]["headers"])
    assert answer[b"content-security-policy"] == POLICY.encode()
    assert answer[b"x-content-type-options"] == b"nosniff"
    assert b"server" not in answer
    return sent[0]["status"]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"])
def test_this_machine_is_welcome(host):
    assert status(host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8765.evil.example", ""]
)
def test_other_hosts_are_refused(host):
    assert status(host=host) == 421


def test_a_request_without_a_host_is_refused():
    assert status() == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:9"])
def test_other_origins_are_refused(origin):
    assert status(host="127.0.0.1:8765", origin=origin) == 403


def test_the_pages_own_origin_is_welcome():
    assert status(host="127.0.0.1:8765", origin="http://127.0.0.1:8765", sec_fetch_site="same-origin") == 200


def test_other_sites_may_link_here_but_not_load_anything():
    assert status(host="127.0.0.1:8765", sec_fetch_site="cross-site", sec_fetch_mode="no-cors") == 403
    assert status(host="127.0.0.1:8765", sec_fetch_site="cross-site", sec_fetch_mode="navigate") == 200


def test_the_policy_lets_in_nothing_from_elsewhere():
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
