"""Data as people hand them in: other types, lists, tables of pandas, labels that are words or any numbers."""

import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch.utils.data import TensorDataset

from fedcef import FedAvg, Problem, clients, run
from fedcef.core.errors import DataNote, FedcefError, ProblemError
from fedcef.problems.counting import count_holdings


def table(count=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, generator=g), torch.arange(count) % 3


def build(data, loss=cross_entropy, outputs=3, **options):
    torch.manual_seed(0)
    return Problem.build(nn.Linear(4, outputs), loss, data, **options)


def refused(sentence):
    return pytest.raises(ProblemError, match=re.escape(sentence))


def noted(sentence):
    return pytest.warns(DataNote, match=re.escape(sentence))


@pytest.fixture
def expected():
    return build([table(), table(4, 1)], test=table(5, 2))


def same(problem, expected):
    for one, other in ((problem.train, expected.train), (problem.test, expected.test)):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)
        assert one.dtypes == other.dtypes


FORMS = {
    "float64": (lambda x, y: (x.double(), y), ["The inputs are float64, and are used as float32."]),
    "float64 arrays": (lambda x, y: (x.numpy().astype("f8"), y.numpy()), ["The inputs are float64, and are used as"]),
    "big-endian": (lambda x, y: (x.numpy().astype(">f4"), y.numpy().astype(">i8")), []),
    "read-only": (lambda x, y: (np.frombuffer(x.numpy().tobytes(), "f4").reshape(-1, 4), y), []),
    "int32 targets": (lambda x, y: (x, y.int()), ["The targets are int32, and are used as int64."]),
    "int16 targets": (lambda x, y: (x, y.to(torch.int16)), ["The targets are int16, and are used as int64."]),
    "lists": (lambda x, y: (x.tolist(), y.tolist()), []),
    "lists of tensors": (lambda x, y: (list(x), list(y)), []),
    "data set of float64": (lambda x, y: TensorDataset(x.double(), y), ["The inputs are float64"]),
}


@pytest.mark.parametrize(("form", "notes"), FORMS.values(), ids=FORMS)
def test_types(form, notes, expected):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        problem = build([form(*table()), form(*table(4, 1))], test=form(*table(5, 2)))
    same(problem, expected)
    assert len(problem.notes) == len(notes) == len(caught)  # once, not for each client
    assert all(said.startswith(note) for said, note in zip(problem.notes, notes, strict=True))
    assert all(issubclass(warning.category, DataNote) for warning in caught)


@pytest.mark.parametrize("form", ["list", "table", "source"])
def test_a_note_shows_the_users_own_line(form):
    x, y = table()
    data, options = [(x.double(), y)], {}
    if form == "table":
        data, options = (x.double(), y), {"client_ids": [0, 1, 2] * 2}
    elif form == "source":
        data = clients.from_arrays(x.double(), y, indices=[[0, 1], [2, 3]])
    with pytest.warns(DataNote) as notes:
        build(data, test=(x.double(), y), **options)
    assert [note.filename for note in notes] == [__file__]


def test_a_run_keeps_the_notes(tmp_path):
    with noted("The inputs are float64, and are used as float32."):
        problem = build([(table()[0].double(), table()[1])])
    history = run(problem, FedAvg(local_lr=0.1), rounds=1, out=tmp_path)
    assert history.notes == ("The inputs are float64, and are used as float32.",)
    assert run(problem, FedAvg(local_lr=0.1), rounds=1).notes == history.notes


def test_a_model_in_float64_gets_float64():
    with noted("The inputs are float32, and are used as float64."):
        problem = Problem.build(nn.Linear(4, 3).double(), cross_entropy, [table()])
    assert problem.train.inputs.dtype == torch.float64


def test_whole_numbers_are_what_the_model_takes():
    tokens = torch.arange(12).view(3, 4) % 5
    embedded = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(8, 3))
    assert Problem.build(embedded, cross_entropy, [(tokens.int(), torch.arange(3))]).train.inputs.dtype == torch.int32
    with noted("The inputs are int16, and are used as int64."):
        Problem.build(embedded, cross_entropy, [(tokens.short(), torch.arange(3))])
    with noted("The inputs are int64, and are used as float32."):
        assert build([(tokens, torch.arange(3))]).train.inputs.dtype == torch.float32


def test_whole_numbers_that_the_loss_wants_as_others():
    x, y = table()
    with noted("The targets are int64, and are used as float32."):
        binary = build([(x, y % 2)], lambda o, t: binary_cross_entropy_with_logits(o.squeeze(1), t), outputs=1)
    assert binary.train.targets.tolist() == [0, 1, 0, 0, 1, 0]
    with noted("The targets are float64, and are used as float32."):
        regression = build([(x, y.double())], lambda o, t: mse_loss(o.squeeze(1), t), outputs=1)
    assert regression.train.targets.dtype == torch.float32


def test_clients_of_other_types_are_cast_when_they_are_read():
    x, y = table()
    shards = [(x, y), (x.double(), y), (x.half(), y)]
    problem = build(clients.from_function(lambda client: shards[client], 3))
    assert problem.notes == ()
    with noted("The inputs are float64, and are used as float32."):
        assert problem.client_samples(1).dtypes == (torch.float32, torch.int64)
    rows = [(x[0], 0), (x[1], 1), (x[2].double(), 2)]
    live = build(clients.from_dataset(rows, [[0, 1, 2]]))
    with noted("The inputs are float64, and are used as float32."):
        assert torch.equal(live.client_samples(0).inputs, x[:3])


WORDS = np.array(["bee", "cat", "ant"])


def worded(x, y):
    return x, WORDS[y]


@pytest.mark.parametrize(
    "form",
    [
        worded,
        lambda x, y: (x, worded(x, y)[1].tolist()),
        lambda x, y: (x, worded(x, y)[1].astype(object)),
        lambda x, y: [(a, str(WORDS[b])) for a, b in zip(x, y, strict=True)],
    ],
    ids=["array", "list", "objects", "samples"],
)
def test_labels_in_words(form, expected):
    problem = build([form(*table()), form(*table(4, 1))], test=form(*table(5, 2)))
    assert problem.classes == ("ant", "bee", "cat")
    number = torch.tensor([1, 2, 0])
    assert torch.equal(problem.train.targets, number[expected.train.targets])
    assert torch.equal(problem.test.targets, number[expected.test.targets])
    assert problem.notes == ()
    assert [problem.classes[n] for n in problem.client_samples(0).targets] == list(WORDS[table()[1]])


def test_classes_may_be_named():
    order = ["cat", "bee", "ant"]
    named = build([worded(*table(2))], test=worded(*table()), classes=order)  # no ant among the clients
    assert named.classes == tuple(order)
    assert named.train.targets.tolist() == [1, 0]
    assert build([(table()[0], table()[1] + 5)], classes=range(5, 8)).train.targets.tolist() == [0, 1, 2, 0, 1, 2]
    with refused("There are 2 classes ('bee', 'cat'), but the model has outputs for 3; give it as many, or name all"):
        build([worded(*table(2))])
    with refused("The targets of client 0 have the label 'ant', which is none of the classes 'cat', 'bee'"):
        build([worded(*table())], classes=["cat", "bee"])
    with refused("The classes are ['a', 'a']; there must be two or more, each of them once."):
        build([worded(*table())], classes=["a", "a"])


@pytest.mark.parametrize(
    "source",
    [
        lambda x, y: clients.from_function(lambda client: (x, y), 2),
        lambda x, y: clients.from_dataset([*zip(x, y.tolist(), strict=True)], [[0, 1, 2], [3, 4, 5]]),
        lambda x, y: clients.from_arrays(x, y, [[0, 1, 2], [3, 4, 5]]),
        lambda x, y: clients.drawn(x, y, num_clients=9, size=5),
    ],
    ids=["function", "data set", "arrays", "drawn"],
)
def test_sources_with_words(source):
    test = worded(*table(5, 2))
    problem = build(source(*worded(*table())), test=test, classes=["cat", "bee", "ant"])
    assert problem.classes == ("cat", "bee", "ant")
    assert problem.test.targets.tolist() == [1, 0, 2, 1, 0]
    assert problem.client_samples(0, 1).dtypes == (torch.float32, torch.int64)
    run(problem, FedAvg(local_lr=0.1), rounds=1)


def test_sources_that_know_all_labels_need_no_names():
    x, y = worded(*table())
    problem = build(clients.from_arrays(x, y, [[0, 1, 2], [4]]), test=(x[:2], y[:2]))
    assert problem.classes == ("ant", "bee", "cat")
    assert problem.client_samples(1).targets.tolist() == [2]
    assert problem.test.targets.tolist() == [1, 2]
    with refused("The targets of client 0 are words or other objects, such as 'bee'; name the classes in their order"):
        build(clients.from_function(lambda client: (x, y), 2))


@pytest.mark.parametrize("labels", [(-1, 1), (3, 7), (1, 2)])
def test_other_numbers_than_those_from_0(labels):
    x, y = table()
    with noted(f"The labels {labels[0]}, {labels[1]} are numbered 0 to 1, in the order of problem.classes."):
        problem = build([(x, torch.tensor(labels)[y % 2])], outputs=2, test=(x[:1], torch.tensor([labels[1]])))
    assert problem.classes == labels
    assert problem.train.targets.tolist() == (y % 2).tolist()
    assert problem.test.targets.tolist() == [1]


def test_numbers_that_the_loss_takes_stay():
    x, y = table()
    signs = 2 * (y % 2) - 1
    margin = build([(x, signs)], lambda o, t: nn.functional.soft_margin_loss(o.squeeze(1), t.float()), outputs=1)
    assert torch.equal(margin.train.targets, signs)
    assert margin.classes == ()
    assert build([(x, torch.where(y == 1, -100, y))]).train.targets.tolist() == [0, -100, 2, 0, -100, 2]
    with refused("Client 0 has the label 7, but the model has 3 outputs"):  # four labels
        build([(x, torch.tensor([0, 1, 2, 7, 0, 1]))])


def test_truth_values():
    x, y = table()
    with noted("The labels False, True are numbered 0 to 1"):
        problem = build([(x, y == 1)], outputs=2)
    assert problem.classes == (False, True)
    assert problem.train.targets.tolist() == [0, 1, 0, 0, 1, 0]


def test_tables_of_pandas():
    pandas = pytest.importorskip("pandas")
    x, y = table()
    frame = pandas.DataFrame(x.double().numpy(), columns=list("abcd"), index=range(10, 16)).assign(kind=WORDS[y])
    with noted("The inputs are float64, and are used as float32."):
        problem = build([(frame[["a", "b", "c", "d"]], frame["kind"])], test=(frame[list("abcd")], frame["kind"]))
    assert torch.equal(problem.train.inputs, x)
    assert problem.classes == ("ant", "bee", "cat")
    mixed = frame.assign(a=range(6), b=[True, False] * 3, c=pandas.array([1, 2, 3, 4, 5, 6], dtype="Int64"))
    with noted("The inputs are float64, and are used as float32."):
        assert build([(mixed[list("abcd")], y)]).train.inputs[1, :3].tolist() == [1, 0, 2]
    with refused("The inputs of client 0 have columns that are no numbers (kind); make numbers of them, as pandas."):
        build([(frame[["a", "b", "c", "kind"]], y)])
    with refused("The inputs of client 0 have NaN or infinite values in 1 of 6 samples"):
        build([(mixed.assign(c=pandas.array([1, None, 3, 4, 5, 6], dtype="Int64"))[list("abcd")], y)])
    categories = frame["kind"].astype("category")
    assert build([(x, categories)]).classes == ("ant", "bee", "cat")
    with refused("must be an (inputs, targets) pair of tensors or a map-style data set, not DataFrame"):
        build([frame])


def test_what_clients_hold_is_told_by_the_names_of_classes():
    x, y = table()
    held = count_holdings(build([worded(x, y), worded(x[:2], y[:2])]))
    assert held.classes == ("ant", "bee", "cat")
    assert held.counts.tolist() == [[2, 2, 2], [0, 1, 1]]
    live = build(clients.from_dataset([*zip(x, y, strict=True)], [[0, 1], [4, 5]]))
    assert count_holdings(live).counts.tolist() == [[1, 1, 0], [0, 1, 1]]


def test_whole_numbers_among_objects_are_class_numbers(expected):
    pandas = pytest.importorskip("pandas")
    for form in (lambda y: pandas.Series(y.tolist(), dtype=object), lambda y: y.numpy().astype(object)):
        data = [(x, form(y)) for x, y in (table(), table(4, 1))]
        same(build(data, test=table(5, 2)), expected)


def test_small_unsigned_class_numbers():
    x, y = table()
    with noted("The targets are uint16, and are used as int64."):
        problem = build([(x, y.numpy().astype("u2"))])
    assert problem.train.targets.tolist() == y.tolist()


def test_labels_that_are_words_here_and_numbers_there():
    x, _ = table()
    with refused("The labels of client 1 are words, and those of client 0 are numbers; give all as words."):
        build([(x, [2, 3, 2, 3, 2, 3]), (x, ["a", "b"] * 3)], outputs=4)
    with refused("The labels of client 0 are words, and those of the test set are numbers"):
        build([(x, ["a", "b", "c"] * 2)], test=table())


def test_words_that_are_missing_in_pandas_own_way():
    pandas = pytest.importorskip("pandas")
    (x, _), words = table(), pandas.Series(["a", "b", None] * 2, dtype="string")
    with refused("The targets of client 0 are missing for some samples; leave these samples out."):
        build([(x, words)])
    with refused("client_ids are missing for some samples; leave these samples out."):
        build(table(), client_ids=words)


def test_what_is_no_list():
    with refused("The clients are a dict; give a list of one (inputs, targets) pair for each."):
        build({"a": table()})
    with refused("The classes must be a list of words, numbers or the like, which can be compared: 'int' object"):
        build([table()], classes=3)


def test_parameters_that_have_no_shape_yet():
    with refused("The model has parameters without a shape yet (weight); call it once on a batch before."):
        Problem.build(nn.LazyLinear(3), cross_entropy, [table()])


def test_classes_with_a_decimal_point_become_whole_numbers(expected):
    forms = [(x, y.float()) for x, y in (table(), table(4, 1))]
    with noted("The targets are float32, and are used as int64."):
        problem = build(forms, test=(table(5, 2)[0], table(5, 2)[1].float()))
    same(problem, expected)


def test_a_class_between_two_others_is_refused():
    x, y = table()
    with refused("cannot take a batch of client 0"):
        build([(x, y + 0.5)])


def test_counts_are_numbers_and_have_no_accuracy():
    x, y = table()
    loss = lambda outputs, targets: mse_loss(outputs.squeeze(1), targets)  # noqa: E731
    with noted("The targets are int64, and are used as float32."):
        problem = build([(x, y)], loss, 1, test=(x, y))
    assert not problem.classifies
    assert "accuracy" not in run(problem, FedAvg(local_lr=0.1), rounds=1).measures


def test_two_classes_by_one_output_stay_classes():
    x, y = table()
    loss = lambda outputs, targets: mse_loss(outputs.squeeze(1), targets)  # noqa: E731
    assert build([(x, y % 2)], loss, 1).classifies


def test_two_classes_for_a_loss_of_numbers_have_an_accuracy_if_asked():
    x, y = table()
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    with noted("The targets are int64, and are used as float32."):
        problem = Problem.build(model, nn.BCEWithLogitsLoss(), [(x, y % 2)], test=(x, y % 2))
    last = run(problem, FedAvg(local_lr=0.1), rounds=1, metrics=["accuracy", "auc"]).last
    right = (problem.outputs(model, problem.z0, x) > 0) == (y % 2 > 0)
    first = run(problem, FedAvg(local_lr=0.1), rounds=1, metrics="accuracy")["accuracy"][0]
    assert first == pytest.approx(float(right.double().mean()))
    assert last["accuracy"] > 0


def test_a_loader_and_a_sparse_matrix_are_refused_with_what_to_give_instead():
    x, y = table()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 2)
    with refused("not DataLoader; give its .dataset, since batches are drawn here."):
        build([loader])
    sparse = pytest.importorskip("scipy.sparse")
    with refused("The inputs of client 0 are a sparse matrix; make it dense by toarray(), or take an estimator"):
        build([(sparse.csr_matrix(x.numpy()), y)])


def test_samples_of_three_parts_are_refused():
    x, y = table()
    with refused("A sample of client 0 has 3 parts; give pairs of an input and a target, ((a, b), target)"):
        build([[(x[i], y[i], i) for i in range(len(x))]])


class Mixed(nn.Module):
    """A frozen bfloat16 layer below a trained float32 one."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4).to(torch.bfloat16).requires_grad_(False)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.base(x.to(torch.bfloat16)).float())


@pytest.mark.parametrize(
    ("precision", "says"),
    [
        ("float64", "frozen parameters of another type (bfloat16) than what is trained"),
        ("bfloat16_weights", "changes the type of frozen parameters, which are bfloat16 here on purpose"),
    ],
)
def test_a_frozen_base_of_another_type_is_computed_as_it_is(precision, says):
    problem = Problem.build(Mixed(), cross_entropy, [table()])
    run(problem, FedAvg(local_lr=0.1), rounds=1)
    with pytest.raises(FedcefError, match=re.escape(says)):
        run(problem, FedAvg(local_lr=0.1), rounds=1, precision=precision)


def test_a_test_set_whose_classes_have_a_decimal_point():
    """As a table with gaps has them, where those of the clients have none."""
    inputs, classes = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    with pytest.warns(DataNote, match="The targets are float64, and are used as int64"):
        problem = Problem.build(nn.Linear(4, 3), cross_entropy, [(inputs, classes)], test=(inputs, classes.double()))
    assert torch.equal(problem.test.targets, classes)
    with pytest.raises(ProblemError, match="The data of the test set is empty; leave it out or give it samples"):
        Problem.build(nn.Linear(4, 3), cross_entropy, [(inputs, classes)], test=(inputs[:0], classes[:0]))
