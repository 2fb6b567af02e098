"""Run folders are read as far as they are intact, and what is not is named."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedcef.core.errors import RunError
from fedcef.runs.model_file import encode_model, read_model
from fedcef.runs.reader import RunReader, find_runs


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.toml").write_text('label = "a"\nrounds = 3\n')
    (tmp_path / "rounds.jsonl").write_text(
        "".join(json.dumps({"round": t, "loss": 1 / (t + 1)}) + "\n" for t in range(4))
    )
    (tmp_path / "summary.json").write_text('{"status": "finished", "rounds": 3}\n')
    (tmp_path / "facts.json").write_text('{"clients": {"samples": [3, 2]}}\n')
    (tmp_path / "notes.jsonl").write_text('{"round": 2, "note": "Slow."}\n')
    (tmp_path / "model.safetensors").write_bytes(encode_model({"weight": torch.ones(3)}, 3))
    return tmp_path


def test_a_whole_folder(folder):
    run = RunReader(folder)
    assert run.settings == {"label": "a", "rounds": 3}
    assert run.settings_text.startswith('label = "a"')
    assert [record["round"] for record in run.records] == [0, 1, 2, 3]
    assert (run.summary["rounds"], run.status) == (3, "finished")
    assert run.facts == {"clients": {"samples": [3, 2]}}
    assert run.notes == [{"round": 2, "note": "Slow."}]
    assert torch.equal(run.model()["weight"], torch.ones(3))
    assert run.damage == ()


@pytest.mark.parametrize("path", ["nothing", "config.toml"])
def test_what_is_not_there_is_empty_and_not_damaged(folder, path):
    run = RunReader(folder / path)
    assert (run.settings, run.settings_text, run.records, run.summary, run.facts, run.notes) == ({}, "", [], {}, {}, [])
    assert (run.status, run.model(), run.damage) == ("unfinished", {}, ())


@pytest.mark.parametrize(
    "bad", [b"\xff{", b'{"round": 1, "lo', b"[1]", b"1", b'{"round": true}', b'{"loss": 1}', b"[" * 9999]
)
def test_a_damaged_line_is_left_out_and_named(folder, bad):
    lines = (folder / "rounds.jsonl").read_bytes().splitlines()
    (folder / "rounds.jsonl").write_bytes(b"\n".join([lines[0], bad, b"", *lines[2:]]) + b"\n")
    run = RunReader(folder)
    assert [record["round"] for record in run.records] == [0, 2, 3]
    assert run.damage == (f"In {folder}, line 2 of rounds.jsonl is damaged and left out.",)


@pytest.mark.parametrize("tail", [b'{"round": 4, "lo', b"{}", b"\xc3", b"4"])
def test_a_last_line_without_its_end_is_only_unfinished(folder, tail):
    with (folder / "rounds.jsonl").open("ab") as file:
        file.write(tail)
    run = RunReader(folder)
    assert [record["round"] for record in run.records] == [0, 1, 2, 3]
    assert run.damage == ()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("facts.json", '{"clients": {"sam'),
        ("summary.json", "[1]"),
        ("summary.json", ""),
        ("config.toml", "a = = 1"),
        ("config.toml", "a = '\udcff'"),
        ("notes.jsonl", "no note\n"),
    ],
)
def test_a_damaged_file_hides_no_other(folder, name, content):
    (folder / name).write_bytes(content.encode(errors="surrogateescape"))
    run = RunReader(folder)
    assert len(run.records) == 4
    (sentence,) = run.damage
    assert name in sentence
    assert "left out" in sentence
    read = {"facts.json": run.facts, "summary.json": run.summary, "config.toml": run.settings, "notes.jsonl": run.notes}
    assert [file for file, found in read.items() if not found] == [name]


def test_a_file_that_is_a_folder_is_named(folder):
    (folder / "facts.json").unlink()
    (folder / "facts.json").mkdir()
    (sentence,) = RunReader(folder).damage
    assert "facts.json cannot be read and is left out: Is a directory" in sentence


# The model


def test_a_model_is_a_safetensors_file_and_equal_models_are_equal_files(tmp_path):
    tensors = {"b": torch.randn(2), "a": torch.randn(2, 3).T, "n": torch.tensor(2.0), "e": torch.zeros(0)}
    (tmp_path / "model").write_bytes(encode_model(tensors, 7))
    for found in (load_file(tmp_path / "model"), read_model(tmp_path / "model")):
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert encode_model(dict(reversed(tensors.items())), 7) == encode_model(tensors, 7)


def test_a_flipped_bit_in_any_byte_of_a_model_is_noticed(tmp_path):
    path = tmp_path / "model"
    whole = encode_model({"weight": torch.randn(2), "bias": torch.randn(1, dtype=torch.float64)}, 7)
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(RunError, match=r"is damaged .*restore it from a copy, or remove it and summary\.json"):
            read_model(path)


def test_a_model_of_before_the_checksum_is_read(tmp_path):
    for metadata in (None, {"round": "7"}):
        save_file({"weight": torch.ones(3)}, tmp_path / "model", metadata)
        assert torch.equal(read_model(tmp_path / "model")["weight"], torch.ones(3))
    with pytest.raises(RunError, match="cannot be read"):
        read_model(tmp_path / "nowhere")


# Which runs there are


def test_runs_are_found_in_a_folder_of_runs_and_one_deeper(tmp_path):
    for name in ("sweep/a/x", "sweep/a/y", "sweep/b/x", "c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").touch()
    assert find_runs(tmp_path / "sweep") == [tmp_path / "sweep" / name for name in ("a/x", "a/y", "b/x")]
    assert find_runs(tmp_path) == find_runs(tmp_path / "c") == [tmp_path / "c"]
    assert find_runs(tmp_path / "nowhere") == []
    (tmp_path / "sweep" / "summary.csv").write_text("label,folder\nx,b/x\ny,a/y\n")
    assert [run.relative_to(tmp_path).as_posix() for run in find_runs(tmp_path / "sweep")] == [
        "sweep/b/x",
        "sweep/a/y",
        "sweep/a/x",
    ]
