"""The guides for language models and adapters: their Python runs and prints what they say; settings are valid."""

import re
import tomllib

from test_pages import blocks, outputs

from fedcef.runs.settings import Settings

NUMBER = re.compile(r"\d[\d,.]*")


def test_a_language_model_on_your_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs, names = outputs("guides/language_model.md")
    for printed, said in pairs[1:]:
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", said)
    bits = names["history"]["bits_per_byte"]
    assert bits[-1] < 1.5 < 7 < bits[0]
    assert names["dense"] > 25 * names["history"].bytes
    table, few = [tomllib.loads(text) for language, text in blocks("guides/language_model.md") if language == "toml"]
    for settings in (Settings(**table), Settings(**table | few)):
        problem = settings.build_problem()  # of the files that the page has written
        assert problem.num_clients == len(names["authors"])
        settings.build_algorithm(problem)


def test_fine_tuning_with_adapters():
    pairs, names = outputs("guides/adapters.md")
    assert [printed for printed, said in pairs if said] == [said for _, said in pairs if said]
    averaged, compressed = names["averaged"], names["compressed"]
    assert all(name.endswith((".a", ".b")) for name in names["problem"].layout.names)
    assert compressed.bytes < averaged.bytes / 10
    for history in (averaged, compressed):
        assert history["train_loss"][-1] < history["train_loss"][0] - 1
