"""Several inputs of a sample, and sequences that differ in length."""

import re

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import fedcef
from fedcef import FedAvg, Problem, ProblemError, clients, pad_to, run
from fedcef.problems.several import Packing

G = torch.Generator().manual_seed(0)
A, B, Y = torch.randn(10, 3, generator=G), torch.randn(10, 2, generator=G), torch.arange(10) % 3


class Two(nn.Module):
    """A linear layer on two inputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, left, right):
        assert left.shape[-1] == 3
        return self.layer(torch.cat([left, right], -1))


class One(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, both):
        return self.layer(both)


def build(data, model=Two, **options):
    torch.manual_seed(0)
    return Problem.build(model(), cross_entropy, data, **options)


class Rows(Dataset):
    def __init__(self, make, rows):
        self.make, self.rows = make, rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        row = self.rows[place]
        return self.make(A[row], B[row]), Y[row]


def tuples(rows):
    return (A[rows], B[rows]), Y[rows]


FORMS = {
    "tables": tuples,
    "named tables": lambda rows: ({"right": B[rows], "left": A[rows]}, Y[rows]),
    "arrays": lambda rows: ((A[rows].numpy(), B[rows].numpy()), Y[rows].numpy()),
    "samples": lambda rows: [((A[i], B[i]), int(Y[i])) for i in rows],
    "named samples": lambda rows: [({"left": A[i], "right": B[i]}, Y[i]) for i in rows],
    "data set": lambda rows: Rows(lambda a, b: (a, b), rows),
}
FIRST, SECOND = list(range(4)), list(range(4, 10))


@pytest.mark.parametrize("oracle", ["loop", "stacked"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_two_inputs_are_one_taken_apart(form, oracle):
    both = torch.cat([A, B], 1)
    one = build([(both[FIRST], Y[FIRST]), (both[SECOND], Y[SECOND])], One, test=(both, Y))
    two = build([form(FIRST), form(SECOND)], test=form(range(10)), live=False)
    ends = [run(p, FedAvg(local_lr=0.1), rounds=3, batch_size=4, oracle=oracle, seed=1) for p in (one, two)]
    for name, value in ends[0].parameters.items():
        assert torch.equal(ends[1].parameters[name], value)
    assert ends[0].last["accuracy"] == ends[1].last["accuracy"]
    assert ends[0]["objective"] == ends[1]["objective"]


def test_live_samples_and_sources():
    copied = build([tuples(FIRST), tuples(SECOND)])
    expected = run(copied, FedAvg(local_lr=0.1), rounds=2, batch_size=4)
    rows = FORMS["samples"](range(10))
    for source in (
        clients.from_function(lambda client: tuples([FIRST, SECOND][client]), 2),
        clients.from_dataset(rows, [FIRST, SECOND]),
    ):
        found = run(build(source), FedAvg(local_lr=0.1), rounds=2, batch_size=4)
        assert found["objective"] == expected["objective"]
    mixed = build([tuples(FIRST), Rows(lambda a, b: (a, b), SECOND)], live=True)
    assert run(mixed, FedAvg(local_lr=0.1), rounds=2, batch_size=4)["objective"] == expected["objective"]


def test_the_model_can_be_used_as_it_was(tmp_path):
    problem = build([tuples(FIRST)])
    history = run(problem, FedAvg(local_lr=0.1), rounds=1, out=tmp_path)
    model = Two()
    assert not model._forward_pre_hooks
    model.load_state_dict(history.parameters)
    assert torch.equal(history.model(A, B), model(A, B))
    left, right = problem.packing.unpack(problem.client_samples(0).inputs)
    assert torch.equal(left, A[FIRST])
    assert torch.equal(right, B[FIRST])


def test_types_of_several_inputs():
    with pytest.warns(fedcef.DataNote, match="The inputs are float64, and are used as float32."):
        problem = build([((A.double(), B), Y)])
    expected = build([((A, B), Y)])
    assert torch.equal(
        problem.outputs(problem.model, problem.z0, problem.train.inputs),
        expected.outputs(expected.model, expected.z0, expected.train.inputs),
    )
    run(expected, FedAvg(local_lr=0.1), rounds=1, precision="float64")
    packing = Packing(("a", "b", "c"), (torch.bool, torch.int64, torch.float16), ((3,), (), (2, 2)))
    parts = {"a": torch.tensor([[True, False, True]]), "b": torch.tensor([-5]), "c": torch.rand(1, 2, 2).half()}
    packed = packing.pack(parts)
    assert packed.shape == (1, packing.width) == (1, 24)
    for part, again in zip(parts.values(), packing.unpack(packed), strict=True):
        assert torch.equal(part, again)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([((A, B[:9]), Y)], "The inputs of client 0 are of 10, 9 samples; all parts must have as many."),
        ([tuples(FIRST), ((A, B.double()), Y)], "The data of client 1 does not fit client 0's: a sample's inputs are"),
        ([tuples(FIRST), (A, Y)], "The data of client 1 does not fit client 0's: a sample's inputs are None, not (3,)"),
        ([((A, B * torch.nan), Y)], "The inputs of client 0 have NaN or infinite values in 10 of 10 samples"),
    ],
)
def test_inputs_that_do_not_fit(data, says):
    with pytest.raises(ProblemError, match=re.escape(says)):
        build(data)


# sequences


class Mean(nn.Module):
    """The mean embedding of the tokens that are there."""

    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(7, 4), nn.Linear(4, 2)

    def forward(self, tokens, mask):
        found = self.embed(tokens) * mask.unsqueeze(-1)
        return self.layer(found.sum(-2) / mask.sum(-1, keepdim=True))


TEXTS = [torch.tensor(text) for text in ([1, 2], [3], [4, 5, 6, 1], [2, 2, 2])]
KINDS = [0, 1, 1, 0]


@pytest.mark.parametrize("length", [4, 6])
def test_padding_does_not_matter_to_a_model_that_masks_it(length):
    expected = build([(TEXTS, KINDS)], Mean, collate=pad_to(4), test=(TEXTS[:2], KINDS[:2]))
    samples = [*zip(TEXTS, KINDS, strict=True)]
    for data in ([(TEXTS, KINDS)], [samples], clients.from_dataset(samples, [[0, 1, 2, 3]])):
        problem = build(data, Mean, collate=pad_to(length))
        assert problem.example.targets.tolist() == KINDS[:2]
        found, reference = (run(p, FedAvg(local_lr=0.1), rounds=2, batch_size=0).last for p in (problem, expected))
        assert found["objective"] == pytest.approx(reference["objective"], rel=1e-6)


def test_a_function_of_one_s_own():
    def longest_word(samples):
        return torch.stack([text[:1].float() for text, _ in samples]), [kind for _, kind in samples]

    problem = build([(TEXTS, ["b", "a", "a", "b"])], lambda: nn.Linear(1, 2), collate=longest_word)
    assert problem.train.inputs.flatten().tolist() == [1, 3, 4, 2]
    assert problem.classes == ("a", "b")


def test_lengths_that_differ():
    with pytest.raises(ProblemError, match=r"give a collate function, such as fedcef.pad_to\(80\)"):
        build([[*zip(TEXTS, KINDS, strict=True)]], Mean)
    with pytest.raises(ProblemError, match=r"pad_to\(80\)"):
        build([(TEXTS, KINDS)], Mean)
    with pytest.raises(ProblemError, match="it must be 1 or more"):
        pad_to(0)
    with pytest.raises(ProblemError, match="collate is for samples that are fetched one by one"):
        build(clients.from_arrays(A, Y, [[0, 1]]), collate=pad_to(3))


def test_inputs_have_the_type_of_what_is_trained():
    """Frozen parameters may be bfloat16, and come first."""

    class Adapted(Two):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(5, 5).bfloat16().requires_grad_(False), nn.Linear(5, 3))

        def forward(self, left, right):
            both = torch.cat([left, right], -1)
            assert both.dtype == torch.float32
            return self.layer[1](both + self.layer[0](both.bfloat16()).float())

    problem = build([((A, B), Y)], Adapted)
    assert run(problem, FedAvg(local_lr=0.1), rounds=1).last["round"] == 1
