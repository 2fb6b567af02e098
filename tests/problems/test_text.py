"""Windows of text as samples: which tokens they hold, how they are drawn, checked and moved; tokens and their loss."""

import pytest
import torch
from torch import nn

from fedcef import FedAvg, Problem, run
from fedcef.core.errors import ConfigError, DataError, ProblemError
from fedcef.core.round import Rounds
from fedcef.deployment import one_client
from fedcef.deployment.client_problem import ClientGradients
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.counting import count_holdings
from fedcef.problems.models import GPT
from fedcef.problems.text import TextData, from_texts, next_token_loss
from fedcef.problems.text.tokens import ByteTokens, HuggingFaceTokens, find_tokens
from fedcef.runs.settings import Settings


def counted(*lengths, context=4, **options):
    """Tokens that tell where they stand: client i has 100·i, 100·i + 1, …"""
    tokens = torch.cat([100 * i + torch.arange(length) for i, length in enumerate(lengths)]).int()
    return TextData(tokens, torch.tensor(lengths), context, **options)


@pytest.mark.parametrize(("length", "windows"), [(5, 1), (8, 1), (9, 2), (12, 2), (13, 3), (41, 10)])
def test_cut_windows_predict_every_token_once(length, windows):
    data = counted(7, length)
    samples = data.samples(1)
    assert len(samples) == int(data.sizes[1]) == windows
    assert samples.dtypes == (torch.int64, torch.int64)
    assert torch.equal(samples.targets, samples.inputs + 1)
    begins = samples.inputs[:, 0].sort().values
    assert begins.tolist() == [100 + 4 * i for i in range(windows)]
    assert samples.targets.flatten().sort().values.tolist() == list(range(101, 101 + 4 * windows))


def test_the_first_samples_are_spread_over_the_text():
    data = counted(1000 * 4 + 1)
    begins = (data.samples(0, 10).inputs[:, 0] / 4000).sort().values
    gaps = begins.diff()
    assert len(data.samples(0, 10)) == 10
    assert gaps.max() < 0.15  # a tenth on average
    assert begins[0] == 0
    assert begins[-1] > 0.8


def test_minibatches_begin_at_any_token_and_stay_within_a_client():
    data = counted(9, 30)
    clients = torch.tensor([1, 0])
    rows = data.draw(clients, torch.tensor([5, 6]), steps=40, size=25)
    take = data.batches(clients, rows)
    batch = take(3)
    assert batch.inputs.shape == batch.targets.shape == (2, 25, 4)
    every = torch.stack([take(k).inputs[..., 0] for k in range(40)], 1).flatten(1)
    assert every[0].unique().tolist() == list(range(100, 126))  # 30 - 4 begins
    assert every[1].unique().tolist() == list(range(5))
    assert torch.equal(batch.inputs, batch.inputs[..., :1] + torch.arange(4))
    assert torch.equal(batch.targets, batch.inputs + 1)
    shares = every[0].bincount()[100:] / every.shape[1]
    assert float((shares - 1 / 26).abs().max()) < 0.02


def test_cut_minibatches_are_drawn_as_from_a_table():
    data, clients = counted(9, 31, windows="cut"), torch.tensor([0, 1])
    keys = torch.tensor([5, 6])
    pooled = Problem.build(Counting(), Counting.loss, [data.samples(0), data.samples(1)]).data
    rows = data.draw(clients, keys, 3, 5)
    assert torch.equal(rows, pooled.draw(clients, keys, 3, 5))
    assert torch.equal(data.batches(clients, rows)(2).inputs, pooled.batches(clients, rows)(2).inputs)
    assert set(data.batches(clients, rows)(2).inputs[0, :, 0].tolist()) <= {0, 4}


class Counting(nn.Module):
    """A model of as many classes as there are tokens in `counted`."""

    def __init__(self, classes=1000):
        super().__init__()
        self.scores = nn.Embedding(classes, classes)

    def forward(self, tokens):
        return self.scores(tokens).transpose(1, 2)

    loss = staticmethod(next_token_loss)


def test_tables_of_equal_clients():
    data = counted(13, 13, 13)
    assert data.equal_sizes
    assert not counted(13, 17).equal_sizes
    tables = data.tables(torch.tensor([2, 0]))
    assert tables.inputs.shape == (2, 3, 4)
    assert torch.equal(tables.inputs[0], data.samples(2).inputs)


def test_some_of_the_clients():
    data = counted(9, 30, 12)
    some = data.only((2, 1))
    assert some.lengths.tolist() == [12, 30]
    assert torch.equal(some.samples(0).inputs, data.samples(2).inputs)
    assert data.only(None) is data
    key = torch.tensor([7])
    who = torch.tensor([1])  # the same client in both
    drawn, alone = (d.batches(who, d.draw(who, key, 1, 9))(0) for d in (data, some))
    assert torch.equal(drawn.inputs, alone.inputs)
    assert [torch.equal(a, b) for a, b in zip(some.identity(), data.identity(), strict=True)] == [False, False, True]


def test_text_that_is_too_short_is_refused():
    with pytest.raises(ProblemError, match=r"text of client 1 has 4 tokens; a window takes context \+ 1 = 5"):
        counted(9, 4)
    with pytest.raises(ProblemError, match="has no clients"):
        from_texts([])
    with pytest.raises(ConfigError, match="context is 0"):
        from_texts(["text"], context=0)
    with pytest.raises(ConfigError, match="windows is 'any'"):
        from_texts(["text"], context=2, windows="any")


@pytest.mark.parametrize("place", [0, 4, 12, 13, 18, 19])
def test_a_token_that_the_model_does_not_know_is_told(place):
    tokens = torch.zeros(20, dtype=torch.int32)
    tokens[place] = 50
    data = TextData(tokens, torch.tensor([13, 7]), 4)
    owner = 0 if place < 13 else 1
    with pytest.raises(ProblemError, match=rf"Client {owner} has the label 50|cannot take a batch of client 0"):
        Problem.build(Counting(50), next_token_loss, data)
    Problem.build(Counting(51), next_token_loss, data)


def test_loss_is_torch_s_cross_entropy_over_all_tokens():
    outputs = torch.randn(3, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(1))
    by_hand = -outputs.log_softmax(1).gather(1, targets.unsqueeze(1)).mean()
    assert torch.allclose(next_token_loss(outputs, targets), by_hand, rtol=0, atol=1e-14)
    assert torch.allclose(next_token_loss(outputs, targets), nn.functional.cross_entropy(outputs, targets), atol=1e-14)


def problem_of_verse(context=6):
    texts = ["the cat sat on the mat. " * 8, "a dog lay under a log. " * 9, "one fish, two fish. " * 10]
    torch.manual_seed(0)
    test = from_texts(["a cat sat on a log. " * 4], context).samples(0)
    return Problem.build(GPT((context,), 256, 1, 2, 8), next_token_loss, from_texts(texts, context), test)


def test_evaluation_counts_every_token():
    """Accuracy is that of all positions of the test set, and the training loss that of all cut windows."""
    problem = problem_of_verse()
    history = run(problem, FedAvg(local_lr=0.1, local_steps=1), rounds=1, batch_size=4, oracle="loop")
    model = problem.model
    model.load_state_dict(history.parameters)
    with torch.no_grad():
        right = (model(problem.test.inputs).argmax(1) == problem.test.targets).double().mean()
        losses = [next_token_loss(model(s.inputs), s.targets) for s in map(problem.client_samples, range(3))]
    assert history["accuracy"][-1] == pytest.approx(float(right), abs=1e-12)
    assert history["train_loss"][-1] == pytest.approx(float(sum(losses) / 3), abs=1e-6)


def test_a_deployed_client_computes_the_simulator_s_gradients():
    problem = problem_of_verse()
    settings = Settings(num_clients=3, batch_size=4, oracle="loop")
    cohort = torch.tensor([2, 0])
    expected = make_oracle(problem, settings).for_round(Rounds(settings, 3).at(4, cohort), 3)(problem.z0, 1)
    for row, client in enumerate(cohort.tolist()):
        alone = one_client(problem, client)
        assert len(alone.data.tokens) == int(problem.data.lengths[client])
        found = ClientGradients(settings, alone, client).in_round(4, 3)(problem.z0, 1)
        assert torch.equal(found, expected[row])


def test_holdings_are_sizes():
    found = count_holdings(problem_of_verse())
    assert found.sizes.tolist() == problem_of_verse().sizes.tolist()
    assert found.counts is None


def test_bytes_are_tokens_and_a_zero_ends_a_document():
    tokens = ByteTokens().encode(["né".encode(), b""])
    assert tokens.dtype == torch.uint8
    assert tokens.tolist() == [110, 195, 169, 0, 0]
    assert len(ByteTokens().encode([])) == 0
    data = from_texts([["ab", b"cd"], "xyz"], context=2)
    assert data.lengths.tolist() == [6, 4]
    assert data.tokens.nbytes == 10


@pytest.mark.extras
def test_a_hugging_face_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["the cat sat on the mat"] * 5, trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    tokens = find_tokens(str(tmp_path / "tokenizer.json"))
    assert isinstance(tokens, HuggingFaceTokens)
    assert tokens.vocabulary == made.get_vocab_size() > 257
    found = tokens.encode([b"the cat", b"on"])
    end = made.token_to_id("<|endoftext|>")
    assert found.dtype == torch.int32
    assert found.tolist() == [*made.encode("the cat").ids, end, *made.encode("on").ids, end]
    with pytest.raises(DataError, match="not UTF-8"):
        tokens.encode([b"\xff"])


def test_a_tokenizer_that_cannot_be_had(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(DataError, match=r"package tokenizers, or take 'bytes'; run: .*pip install tokenizers$"):
        find_tokens("gpt2")
