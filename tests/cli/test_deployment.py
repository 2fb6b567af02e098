"""`fedcef deployment`: what an operator does to the folder of a deployment's server."""

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # where deployment/ is

from deployment.loopback import Loopback
from deployment.setting import small_settings
from fedcef.deployment import Coordinator
from fedcef.deployment.keys import key_name
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run


@pytest.fixture
def folder(tmp_path):
    return Loopback(small_settings("fedcef"), tmp_path / "lab").run(2).server.state.folder.path


KEY = "key-" + 32 * "a"


def test_numbers_are_listed_freed_and_given(fedcef, folder):
    assert fedcef("deployment", "clients", "list", folder).out.splitlines()[2] == "2\tsite-2"
    assert "site-2 had it" in fedcef("deployment", "clients", "free", folder, 2).out.replace("\n", " ")
    assert fedcef("deployment", "clients", "assign", folder, 2, KEY).code == 0
    assert f"2\t{KEY}" in fedcef("deployment", "clients", "list", folder).out
    assert fedcef("deployment", "clients", "assign", folder, 3, KEY).code == 0  # it was not 2
    names = [line.split("\t") for line in fedcef("deployment", "clients", "list", folder).out.splitlines()]
    assert names == [["0", "site-0"], ["1", "site-1"], ["3", KEY], ["4", "site-4"]]


def test_mistakes_are_one_sentence(fedcef, folder, tmp_path):
    assert (
        "There is no client 9; this run has 0 to 4"
        in fedcef("deployment", "clients", "assign", folder, 9, KEY).sentence
    )
    result = fedcef("deployment", "clients", "assign", folder, 2, "node-7.pub")
    assert result.code == 2
    assert "node-7.pub is neither a key's name" in result.sentence
    with RunFolder(folder).locked():
        assert "is being worked on by process" in fedcef("deployment", "clients", "free", folder, 2).sentence
        assert fedcef("deployment", "clients", "list", folder).code == 0
    run(small_settings("fedcef", rounds=1), RunFolder(tmp_path / "simulated"))
    for command in (["clients", "list"], ["recover"]):
        assert "is the folder of a simulated run" in fedcef("deployment", *command, tmp_path / "simulated").sentence


def test_a_server_from_an_older_copy_goes_on(fedcef, folder):
    before = (folder / "run.json").read_text()
    result = fedcef("deployment", "recover", folder)
    assert result.code == 0
    said = result.out.replace("\n", " ")
    assert "The run continues after 2 rounds" in said
    assert "flwr run" in said
    assert (folder / "run.json").read_text() != before


def test_the_name_of_a_key_is_what_flower_s_server_sees(fedcef, tmp_path):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    ssh = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "node-0.pub").write_bytes(ssh + b" node-0\n")
    assert fedcef("deployment", "key", tmp_path / "node-0.pub").out.strip() == key_name(pem)


def test_the_exit_code_tells_whether_somebody_should_look(fedcef, folder):
    result = fedcef("deployment", "status", folder)
    assert (result.code, result.out.split(":")[0]) == (1, "stopped")
    with RunFolder(folder).locked():
        result = fedcef("deployment", "status", folder)
        assert (result.code, result.out.split(";")[0]) == (0, "running: 2 of 9 rounds are over")
        for name in ("rounds.jsonl", "lock"):
            os.utime(folder / name, (0, 0))
        assert (fedcef("deployment", "status", folder).code, (folder / "lock").exists()) == (1, True)
    server = Coordinator.recover(folder)
    server.state.finish("diverged")
    assert fedcef("deployment", "status", folder).code == 3
    server.finish()
    assert fedcef("deployment", "status", folder).code == 0
