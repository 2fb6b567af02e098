"""One file per method.  To add one: its class in a file of its own, and a line here."""

from fedcef.algorithms.algorithm import Algorithm
from fedcef.algorithms.c_fedda import CFedDA
from fedcef.algorithms.compressed_scaffnew import CompressedScaffnew
from fedcef.algorithms.dasha_pp import DASHAPP
from fedcef.algorithms.data_parallel import DataParallel
from fedcef.algorithms.demo import DeMo
from fedcef.algorithms.diloco import DiLoCo
from fedcef.algorithms.econtrol import EControl
from fedcef.algorithms.ef14 import EF14
from fedcef.algorithms.ef21 import EF21
from fedcef.algorithms.ef21_bc import EF21BC
from fedcef.algorithms.ef21_pp import EF21PP
from fedcef.algorithms.ef21_prox import EF21Prox
from fedcef.algorithms.ef21_sgdm import EF21SGDM
from fedcef.algorithms.fast_fedda import FastFedDA
from fedcef.algorithms.fed_ef import FedEF
from fedcef.algorithms.fedadagrad import FedAdagrad
from fedcef.algorithms.fedadam import FedAdam
from fedcef.algorithms.fedadmm import FedADMM
from fedcef.algorithms.fedavg import FedAvg
from fedcef.algorithms.fedavgm import FedAvgM
from fedcef.algorithms.fedbuff import FedBuff
from fedcef.algorithms.fedcanon import FedCanon
from fedcef.algorithms.fedcef import FedCEF
from fedcef.algorithms.fedcomgate import FedCOMGATE
from fedcef.algorithms.fedcomloc import FedComLoc
from fedcef.algorithms.fedda import FedDA
from fedcef.algorithms.feddc import FedDC
from fedcef.algorithms.feddr import FedDR
from fedcef.algorithms.feddyn import FedDyn
from fedcef.algorithms.fedmid import FedMiD
from fedcef.algorithms.fedpaq import FedPAQ
from fedcef.algorithms.fedpd import FedPD
from fedcef.algorithms.fedprox import FedProx
from fedcef.algorithms.fedyogi import FedYogi
from fedcef.algorithms.fetchsgd import FetchSGD
from fedcef.algorithms.locodl import LoCoDL
from fedcef.algorithms.qsparse import Qsparse
from fedcef.algorithms.scafcom import SCAFCOM
from fedcef.algorithms.scaffnew import Scaffnew
from fedcef.algorithms.scaffold import SCAFFOLD
from fedcef.algorithms.scallion import SCALLION
from fedcef.algorithms.sparseloco import SparseLoCo
from fedcef.algorithms.tamuna import TAMUNA
from fedcef.algorithms.zhang import Zhang

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedcef": FedCEF,
    "zhang": Zhang,
    "fedavg": FedAvg,
    "fedda": FedDA,
    "fedcanon": FedCanon,
    "scallion": SCALLION,
    "scafcom": SCAFCOM,
    "ef14": EF14,
    "ef21": EF21,
    "ef21_sgdm": EF21SGDM,
    "ef21_prox": EF21Prox,
    "ef21_bc": EF21BC,
    "ef21_pp": EF21PP,
    "dasha_pp": DASHAPP,
    "econtrol": EControl,
    "qsparse": Qsparse,
    "fedpaq": FedPAQ,
    "fedcomgate": FedCOMGATE,
    "fed_ef": FedEF,
    "fetchsgd": FetchSGD,
    "fedmid": FedMiD,
    "fast_fedda": FastFedDA,
    "c_fedda": CFedDA,
    "feddr": FedDR,
    "fedadmm": FedADMM,
    "fedprox": FedProx,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "fedbuff": FedBuff,
    "scaffold": SCAFFOLD,
    "feddyn": FedDyn,
    "fedpd": FedPD,
    "feddc": FedDC,
    "scaffnew": Scaffnew,
    "compressed_scaffnew": CompressedScaffnew,
    "tamuna": TAMUNA,
    "fedcomloc": FedComLoc,
    "locodl": LoCoDL,
    "data_parallel": DataParallel,
    "diloco": DiLoCo,
    "sparseloco": SparseLoCo,
    "demo": DeMo,
}

__all__ = [
    "ALGORITHMS",
    "DASHAPP",
    "EF14",
    "EF21",
    "EF21BC",
    "EF21PP",
    "EF21SGDM",
    "SCAFCOM",
    "SCAFFOLD",
    "SCALLION",
    "TAMUNA",
    "CFedDA",
    "CompressedScaffnew",
    "DataParallel",
    "DeMo",
    "DiLoCo",
    "EControl",
    "EF21Prox",
    "FastFedDA",
    "FedADMM",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBuff",
    "FedCEF",
    "FedCOMGATE",
    "FedCanon",
    "FedComLoc",
    "FedDA",
    "FedDC",
    "FedDR",
    "FedDyn",
    "FedEF",
    "FedMiD",
    "FedPAQ",
    "FedPD",
    "FedProx",
    "FedYogi",
    "FetchSGD",
    "LoCoDL",
    "Qsparse",
    "Scaffnew",
    "SparseLoCo",
    "Zhang",
]
