"""Corpora: files dealt to clients by each rule, what is held out, checksums; the standard library in a run."""

import hashlib

import pytest

from fedcef.core.errors import ConfigError, DataError
from fedcef.core.parts import make
from fedcef.problems.catalog import DATA
from fedcef.problems.text.corpus import Document, checksum, cut_evenly, deal_in_turn, deal_parts, hold_out, plain
from fedcef.problems.text.stdlib import read_stdlib
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run
from fedcef.runs.settings import Settings

TINY = {"name": "gpt", "layers": 1, "heads": 2, "width": 8}


def build(num_clients=2, **section):
    section = {"name": "text", "context": 4, **section}
    return make("data", DATA, section).build(num_clients, 0, TINY)


def text_of(problem, client):
    data = problem.data
    start = int(data.starts[client])
    return bytes(data.tokens[start : start + int(data.lengths[client])].tolist())


@pytest.fixture
def folder(tmp_path):
    for name, content in {"b/1": b"bbbb1" * 4, "a/2": b"aaaa2" * 9, "a/1": b"aaaa1" * 5, "c": b"cccc" * 30}.items():
        (tmp_path / f"{name}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.txt").write_bytes(content)
    (tmp_path / "a" / "no.md").write_bytes(b"not this one")
    return tmp_path


def test_a_file_for_each_client(folder):
    problem = build(4, path=str(folder), test_share=0.2, test_windows=0)
    assert [text_of(problem, i) for i in range(4)] == [
        content + b"\0" for content in (b"cccc" * 24, b"aaaa2" * 7 + b"a", b"aaaa1" * 4, b"bbbb1" * 3 + b"b")
    ]
    assert problem.test.inputs.shape[1] == 4
    assert len(problem.test) == (24 + 9 + 5 + 4 + 4 - 1) // 4
    assert problem.model.embedding.num_embeddings == 256


def test_files_are_joined_where_clients_are_fewer(folder):
    problem = build(2, path=str(folder), test_share=0)
    assert text_of(problem, 0) == b"cccc" * 30 + b"\0"
    assert text_of(problem, 1) == b"aaaa2" * 9 + b"\0" + b"aaaa1" * 5 + b"\0" + b"bbbb1" * 4 + b"\0"
    assert problem.test is None


def test_folders_go_to_clients_as_a_whole(folder):
    problem = build(3, path=str(folder), split="folder", test_share=0)
    assert [text_of(problem, i)[:5] for i in range(3)] == [b"ccccc", b"aaaa1", b"bbbb1"]
    assert b"aaaa2" in text_of(problem, 1)


def test_documents_in_turn(tmp_path):
    (tmp_path / "all.txt").write_text("--".join(f"document {i}" for i in range(7)) + "--  ")
    problem = build(3, path=str(tmp_path / "all.txt"), split="round_robin", separator="--", test_share=0)
    assert [text_of(problem, i).count(b"document") for i in range(3)] == [3, 2, 2]
    assert text_of(problem, 1) == b"document 1\0document 4\0"


def test_contiguous_pieces_of_equal_length(tmp_path):
    (tmp_path / "all.txt").write_bytes(bytes(range(65, 105)))
    problem = build(2, path=str(tmp_path / "all.txt"), split="contiguous", test_share=0.25, test_windows=0)
    assert text_of(problem, 0) == bytes(range(65, 80)) + b"\0"
    assert text_of(problem, 1) == bytes(range(85, 100)) + b"\0"
    assert len(problem.test) == 2


def test_pieces_do_not_cut_a_character_in_two():
    text = "aé€".encode() * 5
    pieces = cut_evenly(text, [0.3, 0.3, 0.4])
    assert b"".join(pieces) == text
    assert [piece.decode() for piece in pieces]


def documents(*sizes):
    return [Document(f"{i}", f"{i}", b"x" * size) for i, size in enumerate(sizes)]


def test_parts_go_to_the_client_that_has_least():
    dealt = deal_parts(documents(5, 9, 4, 3, 8), 2)
    assert [[d.name for d in mine] for mine in dealt] == [["1", "2", "3"], ["4", "0"]]
    with pytest.raises(ConfigError, match="num_clients is 3, but the corpus has 2 parts"):
        deal_parts(documents(1, 1), 3)
    with pytest.raises(ConfigError, match="num_clients is 3, but the corpus has 2 documents"):
        deal_in_turn(documents(1, 1), 3)


def test_documents_are_held_out_by_their_hash():
    many = [Document(str(i), str(i), str(i).encode()) for i in range(2000)]
    train, test = hold_out(many, 0.25)
    assert sorted([*train, *test], key=lambda d: int(d.name)) == many
    assert len(test) == pytest.approx(500, abs=60)
    assert all(hashlib.sha256(d.content).digest()[0] < 64 for d in test)
    assert hold_out(many, 0.0)[1] == []


def test_a_checksum_is_of_names_and_contents():
    one = [Document("a", "a", b"12"), Document("b", "b", b"3")]
    assert checksum(one) == hashlib.sha256(b"a\0" + b"2\0" + b"12" + b"b\0" + b"1\0" + b"3").hexdigest()
    assert checksum([Document("a", "a", b"1"), Document("b", "b", b"23")]) != checksum(one)
    assert plain(b"a\r\nb\n") == b"a\nb\n"


def test_a_checksum_that_is_known_is_held_against_the_text(folder):
    source = make("data", DATA, {"name": "text", "path": str(folder), "context": 4})
    found = source.found()["sha256"]
    build(2, path=str(folder), sha256=found)
    (folder / "c.txt").write_bytes(b"other")
    with pytest.raises(DataError, match=f"not the one that data.sha256 is of: {found}"):
        build(2, path=str(folder), sha256=found)


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({}, "data.path is missing"),
        ({"path": "{folder}/nowhere"}, "has no files"),
        ({"path": "{folder}", "split": "lines"}, "data.split is 'lines'"),
        ({"path": "{folder}", "context": 50}, "text of client 1 has .* tokens; a window takes context"),
        ({"path": "{folder}", "test_share": 0.001}, "The test set has .* tokens"),
        ({"path": "{folder}", "test_share": 1.0}, "data.test_share is 1.0"),
        ({"path": "{folder}", "patern": "*"}, "Did you mean data.pattern"),
    ],
)
def test_what_does_not_fit_is_told(folder, section, sentence):
    given = {k: v.format(folder=folder) if isinstance(v, str) else v for k, v in section.items()}
    with pytest.raises((ConfigError, DataError, Exception), match=sentence):
        build(4, **given)


# the standard library


@pytest.fixture(scope="module")
def library():
    return read_stdlib()


def test_the_standard_library_s_parts_are_its_packages_and_modules(library):
    parts = {document.part for document in library}
    assert {"asyncio", "json", "argparse.py", "email"} <= parts
    assert not parts & {"site-packages", "test", "__pycache__"}
    assert not any("/test/" in document.name or "_sysconfigdata" in document.name for document in library)
    assert len(parts) > 100
    names = [document.name for document in library]
    assert names == sorted(names)
    assert b"\r\n" not in next(d.content for d in library if d.name == "json/decoder.py")


def test_tests_and_installed_packages_are_left_out(tmp_path):
    files = ["a.py", "p/q.py", "p/tests/t.py", "test/x.py", "test/y/z.py", "site-packages/s.py", "_sysconfigdata_u.py"]
    for name in [*files, "config-3/c.py", "p/__pycache__/q.py", "sitecustomize.py", "p/notes.txt"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"pass\n")
    assert [d.name for d in read_stdlib(folder=tmp_path)] == ["a.py", "p/q.py"]
    everything = read_stdlib(tests=True, folder=tmp_path)
    assert [d.name for d in everything] == ["a.py", "p/q.py", "p/tests/t.py", "test/x.py", "test/y/z.py"]
    assert [d.part for d in everything] == ["a.py", "p", "p", "test/x.py", "test/y"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no source files"):
        read_stdlib(folder=tmp_path / "empty")


def test_a_gpt_learns_the_standard_library(tmp_path):
    """50,000 parameters, four clients, plain steps: the loss falls on the clients' text and on what was held out."""
    settings = Settings(
        num_clients=4,
        rounds=8,
        local_lr=0.5,
        batch_size=16,
        oracle="loop",
        algorithm={"name": "fedavg"},
        regularizer={"name": "zero"},
        data={"name": "stdlib", "context": 32, "test_windows": 64, "tokens_per_client": 10_000},
        model={"layers": 2, "heads": 2, "width": 40},
        eval={"every": 8, "train_samples": 128, "metrics": ["fedcef.problems.text:next_token_loss"]},
    )
    folder = RunFolder(tmp_path / "run")
    run(settings, folder)
    records = [record for record in folder.records() if "train_loss" in record]
    problem = settings.build_problem()
    assert 45_000 < problem.dim < 55_000
    assert problem.data.lengths.tolist() == [10_000] * 4
    assert records[0]["train_loss"] > 4.5
    assert records[-1]["train_loss"] < records[0]["train_loss"] - 1.5
    assert records[-1]["next_token_loss"] < records[0]["next_token_loss"] - 1.5
    assert records[-1]["accuracy"] > 0.15


def test_a_checksum_of_another_version_of_python():
    section = {"name": "stdlib", "sha256": "0" * 64}
    with pytest.raises(DataError, match=r"data.sha256 is of: 0{64}; .* It depends on the version of Python"):
        make("data", DATA, section).build(2, 0, TINY)
