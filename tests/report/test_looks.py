"""A curve looks the same wherever it is shown."""

from fedcef.algorithms import ALGORITHMS
from fedcef.report import load_runs
from fedcef.report.data.groups import group_runs
from fedcef.report.data.looks import KNOWN, choose_looks, name_look


def looks(folders):
    items = group_runs(load_runs(folders))
    return dict(zip([item.label for item in items], choose_looks(items), strict=True))


def test_every_method_of_the_package_has_a_look_of_its_own():
    assert KNOWN.keys() == ALGORITHMS.keys()
    assert len(set(KNOWN.values())) == len(KNOWN)


def test_a_look_does_not_depend_on_the_others_nor_on_their_order(make_run):
    folders = [make_run(name, label=name, algorithm=name) for name in ("zhang", "fedcef", "fedda", "mine.py:Own")]
    every = looks(folders)
    assert looks(folders[::-1]) == every
    assert all(looks([folder]).items() <= every.items() for folder in folders)
    assert (every["fedcef"].color, every["zhang"].color) == ("#0072b2", "#d55e00")


def test_variants_share_a_hue_and_tell_of_ratio_and_downlink(make_run):
    def run(name, ratio, downlink):
        extra = f'\n[compressor]\nname = "topk"\nratio = {ratio}\n'
        return make_run(name, label=name, more=extra, downlink=downlink)

    folders = [run("much", 0.1, "increment"), run("little", 0.01, "increment"), run("dense", 0.1, "dense")]
    folders += [run("snapshot", 0.1, "snapshot"), run("lossy", 0.1, "lossy")]
    found = looks(folders)
    assert found["much"].color == found["dense"].color == "#0072b2"
    assert (found["little"].color, found["little"].dark) == ("#003350", "#c0e0f3")
    assert (found["much"].dash, found["dense"].dash) == ((), (5, 2))
    assert (found["snapshot"].dash, found["lossy"].dash) == ((5, 1.5, 1, 1.5), (1.5, 1.2))
    assert {look.symbol for look in found.values()} == {"circle"}
    assert looks(folders[1:2])["little"] == found["little"]


def test_many_variants_of_one_method_all_differ(make_run):
    folders = [make_run(f"v{i}", label=f"variant {i}") for i in range(40)]
    found = looks(folders)
    assert len(set(found.values())) == 40
    assert {look.color for look in found.values()} <= {"#0072b2", "#00507d"}


def test_a_curve_named_after_its_method_keeps_its_look_beside_others(make_run):
    folders = [make_run("a", label="FedCEF r=0.1"), make_run("b", label="old")]
    assert looks(folders)["FedCEF r=0.1"] == looks(folders[:1])["FedCEF r=0.1"] != looks(folders)["old"]


def test_other_names_have_a_look_too():
    assert name_look("l1") == name_look("l1") != name_look("group lasso")
