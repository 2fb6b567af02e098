"""The names that `fedcef` offers and where they live: type checkers read them here, and so does `__init__.py`."""

from fedcef import algorithms as algorithms
from fedcef import clients as clients
from fedcef import compressors as compressors
from fedcef import estimators as estimators
from fedcef import problems as problems
from fedcef import regularizers as regularizers
from fedcef import report as report
from fedcef import runs as runs
from fedcef import wire as wire
from fedcef.algorithms import FedAvg as FedAvg
from fedcef.algorithms import FedCanon as FedCanon
from fedcef.algorithms import FedCEF as FedCEF
from fedcef.algorithms import FedDA as FedDA
from fedcef.algorithms import Zhang as Zhang
from fedcef.compressors import Identity as Identity
from fedcef.compressors import LayerwiseTopK as LayerwiseTopK
from fedcef.compressors import RandK as RandK
from fedcef.compressors import TopK as TopK
from fedcef.core.errors import ConfigError as ConfigError
from fedcef.core.errors import DataNote as DataNote
from fedcef.core.errors import DivergedError as DivergedError
from fedcef.core.errors import FedcefError as FedcefError
from fedcef.core.errors import ProblemError as ProblemError
from fedcef.core.training import Training as Training
from fedcef.estimators import FederatedElasticNet as FederatedElasticNet
from fedcef.estimators import FederatedLasso as FederatedLasso
from fedcef.estimators import FederatedLogisticRegression as FederatedLogisticRegression
from fedcef.estimators import FederatedRidge as FederatedRidge
from fedcef.problems.buffers import group_norm as group_norm
from fedcef.problems.partitioning import partition as partition
from fedcef.problems.problem import Problem as Problem
from fedcef.problems.problem import Samples as Samples
from fedcef.problems.several import pad_to as pad_to
from fedcef.python.history import History as History
from fedcef.python.run import Interrupted as Interrupted
from fedcef.python.run import run as run
from fedcef.regularizers import L1 as L1
from fedcef.regularizers import ElasticNet as ElasticNet
from fedcef.regularizers import OnParameters as OnParameters
from fedcef.regularizers import Zero as Zero

__version__: str
