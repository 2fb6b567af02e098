"""`fedcef doctor deployment`: certificates, keys, clock, disk and code of a deployment's machine."""

import importlib.util
import json
import os
from datetime import timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("cryptography", reason="it comes with Flower: pip install 'fedcef[flower]'")

from fedcef.cli import deployment_diagnosis

SCRIPT = Path(__file__).parents[2] / "examples" / "flower" / "secure" / "credentials.py"


@pytest.fixture
def secrets(tmp_path):
    def made(days=400):
        spec = importlib.util.spec_from_file_location("credentials", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.SLACK = timedelta(days=10)  # how long ago certificates begin
        module.main([str(tmp_path / "keys"), "--server", "localhost", "--nodes", "1", "--days", str(days)])
        return tmp_path / "keys"

    return made


@pytest.fixture(autouse=True)
def well(monkeypatch):
    for name, value in deployment_diagnosis.WANTED.items():
        monkeypatch.setenv(name, value)


def found(fedcef, *options):
    result = fedcef("doctor", "deployment", "--json", *options)
    return result.code, {(one["group"], one["name"]): one for one in json.loads(result.out)}


def test_a_machine_that_is_well(fedcef, secrets, tmp_path):
    (tmp_path / "states").mkdir(mode=0o700)
    code, findings = found(fedcef, "--secrets", secrets(), "--folder", tmp_path / "states")
    assert code == 0
    assert findings["Code", "fedcef"]["status"] == "ok"
    assert findings["Secrets", "server.crt"]["status"] == "ok"
    assert "keep it off line" in findings["Secrets", "ca.key"]["remedy"]
    assert findings["Clock", "clock"]["status"] == "missing"


@pytest.mark.parametrize(("days", "status"), [(20, "missing"), (-1, "broken")], ids=["soon", "over"])
def test_certificates_that_end(fedcef, secrets, days, status):
    folder = secrets()
    (folder / "server.crt").unlink()
    secrets(days)
    assert found(fedcef, "--secrets", folder)[1]["Secrets", "server.crt"]["status"] == status


def test_a_file_that_is_no_certificate_hides_nothing_else(fedcef, secrets):
    folder = secrets()
    (folder / "old.crt").write_text("not a certificate")
    code, findings = found(fedcef, "--secrets", folder)
    assert (code, findings["Secrets", "old.crt"]["remedy"]) == (1, "put back the right file")
    assert findings["Secrets", "server.crt"]["status"] == findings["Secrets", "server.key"]["status"] == "ok"


def test_a_certificate_of_another_authority(fedcef, secrets):
    folder = secrets()
    server = (folder / "server.crt").read_bytes()
    for path in folder.iterdir():
        path.unlink()
    secrets()
    (folder / "server.crt").write_bytes(server)
    result = fedcef("doctor", "deployment", "--secrets", folder)
    assert result.code == 1
    assert "not signed by ca.crt" in result.out.replace("\n", " ")


def test_halves_that_do_not_belong_together(fedcef, secrets):
    folder = secrets()
    public = (folder / "node-0.pub").read_bytes()
    certificate = (folder / "server.crt").read_bytes()
    for name in ("node-0.key", "node-0.pub", "server.key", "server.crt"):
        (folder / name).unlink()
    secrets()
    (folder / "node-0.pub").write_bytes(public)
    (folder / "server.crt").write_bytes(certificate)
    (folder / "other.key").write_text("no key")
    code, findings = found(fedcef, "--secrets", folder)
    assert code == 1
    assert findings["Secrets", "node-0.pub"]["found"] == "not of node-0.key"
    assert findings["Secrets", "server.crt"]["found"] == "not of server.key"
    assert "no key" in fedcef("doctor", "deployment", "--secrets", folder).out


def test_what_is_missing(fedcef, secrets, tmp_path):
    folder = secrets()
    for name in ("ca.crt", "server.crt"):
        (folder / name).unlink()
    code, findings = found(fedcef, "--secrets", folder)
    assert code == 1
    assert {findings["Secrets", name]["found"] for name in ("ca.crt", "server.crt")} == {"it is missing"}
    code, findings = found(fedcef, "--secrets", tmp_path / "nowhere")
    assert (code, findings["Secrets", str(tmp_path / "nowhere")]["remedy"]) == (1, "give the one with the keys")


@pytest.mark.skipif(os.name == "nt", reason="rights as POSIX has them")
def test_what_others_can_read(fedcef, secrets, tmp_path):
    folder = secrets()
    (folder / "node-0.key").chmod(0o644)
    (tmp_path / "states").mkdir()
    (tmp_path / "states").chmod(0o755)
    code, findings = found(fedcef, "--secrets", folder, "--folder", tmp_path / "states")
    assert code == 1
    assert findings["Secrets", "node-0.key"]["remedy"] == f"chmod 600 {folder / 'node-0.key'}"
    assert findings["Disk", str(tmp_path / "states")]["remedy"] == f"chmod 700 {tmp_path / 'states'}"


@pytest.mark.parametrize(("off", "status"), [(0, "ok"), (-20, "broken"), (200, "ok"), (400, "broken")])
def test_clocks(fedcef, monkeypatch, off, status):
    """The server's clock is so far ahead of this one."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response_only(403)
            self.send_header("Date", formatdate(deployment_diagnosis.time.time() + off, usegmt=True))
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        code, findings = found(fedcef, "--server", f"127.0.0.1:{server.server_port}")
        server.shutdown()
    assert findings["Clock", "clock"]["status"] == status
    assert code == (status == "broken")


def test_code_from_an_index_and_a_forgotten_variable(fedcef, monkeypatch):
    monkeypatch.setattr(deployment_diagnosis, "installed_from", lambda: "")
    monkeypatch.delenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION")
    _, findings = found(fedcef)
    assert "from a checkout" in findings["Code", "fedcef"]["remedy"]
    wanted = findings["Environment", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"]
    assert (wanted["status"], wanted["remedy"]) == ("broken", "export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1")


def test_mistakes_are_one_sentence(fedcef):
    assert "not 'deploy'" in fedcef("doctor", "deploy").sentence
    assert "are for `fedcef doctor deployment`" in fedcef("doctor", "--server", "a:1").sentence
    assert fedcef("doctor", "deployment", "--server", "127.0.0.1:1").code == 1
