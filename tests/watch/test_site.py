"""The page for a browser: as new as the folder, made no more often than that, and for this machine only."""

import json
import socket
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from fedcef.core.errors import RunError
from fedcef.watch import Site
from fedcef.watch.site import HOST

from .setting import Growing


@pytest.fixture
def growing(tmp_path):
    return Growing(tmp_path / "run")


@pytest.fixture
def site(growing):
    return Site(growing.folder)


@pytest.fixture
def get(site):
    with site.served() as address:

        def ask(path=""):
            with urlopen(address + path, timeout=60) as answer:
                return answer.read().decode(), answer.headers

        ask.address = address
        yield ask


def version(get):
    return json.loads(get("version")[0])


def test_the_report_is_made_again_only_when_a_round_was_added(get, growing, site):
    assert "Waiting for the first round." in get("report")[0]
    growing.rounds(0, 1, 2)
    before = version(get)
    assert before["state"] == "running, round 2 of 20"
    report, _ = get("report?" + before["version"])
    assert "FedCEF" in report
    assert "connect-src" not in report  # its own policy forbids all requests
    assert version(get) == before
    assert get("report")[0] == report
    growing.write('{"round": 3, ')  # half a line is nothing new
    assert version(get) == before
    assert get("report")[0] == report
    assert site.pages == 1
    growing.write('"wire_up_bytes": 1, "wire_down_bytes": 1, "wall_s": 2}\n')
    after = version(get)
    assert after["version"] != before["version"]
    assert get("report")[0] != report
    assert site.pages == 2


def test_the_end_is_something_new(get, growing):
    growing.rounds(*range(21))
    before = version(get)
    growing.end()
    after = version(get)
    assert after["version"] != before["version"]
    assert after["state"] == "finished, round 20 of 20"


def test_the_outer_page_may_ask_only_here(get):
    page, headers = get()
    assert "{{" not in page
    assert 'fetch("version"' in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert headers["Cache-Control"] == "no-store"
    assert get("report")[1]["Content-Security-Policy"] == "frame-ancestors 'self'"


def test_runs_that_have_not_begun_are_left_out(tmp_path):
    Growing(tmp_path / "out" / "a", label="begun").rounds(0, 1)
    Growing(tmp_path / "out" / "b", label="not begun")
    site = Site(tmp_path / "out")
    assert b"begun" in site.report()
    assert b"not begun" not in site.report()
    assert site.news()["state"] == "running, 0 of 2 ended"


def test_a_folder_that_cannot_be_shown_is_told(growing, site):
    growing.write('{"round": 0}\nnonsense\n{"round": 1}\n')
    assert b"line 2 of rounds.jsonl is damaged" in site.report()


@pytest.mark.parametrize("path", ["config.toml", "../config.toml", "rounds.jsonl", "report/", "%2e%2e/"])
def test_nothing_else_is_served(get, path):
    with pytest.raises(HTTPError, match="404") as refused:
        get(path)
    refused.value.close()


def test_another_name_for_this_machine_is_refused(get):
    connection = HTTPConnection(urlsplit(get.address).netloc, timeout=60)
    for host, status in (("evil.example", 403), (urlsplit(get.address).netloc, 200)):
        connection.request("GET", "/version", headers={"Host": host})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        connection.close()


def test_only_this_machine_is_listened_to(get):
    assert urlsplit(get.address).hostname == HOST == "127.0.0.1"


def test_a_port_that_is_taken(site):
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(RunError, match=f"Port {port} of 127.0.0.1 cannot be used"), site.served(port):
            pass
