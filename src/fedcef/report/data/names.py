"""How metrics, axes, data sets and parts of settings are called in print."""

METRICS = {  # key -> (name, name of the unit, factor)
    "accuracy": ("Test accuracy", "%", 100.0),
    "gap": ("Gap to the optimum, F(z) - F*", "", 1.0),
    "objective": ("Objective", "", 1.0),
    "f1": ("F1 of the support", "", 1.0),
    "train_loss": ("Train loss", "", 1.0),
    "test_loss": ("Test loss", "", 1.0),
    "perplexity": ("Perplexity", "", 1.0),
    "bits_per_byte": ("Bits per byte", "", 1.0),
    "mse": ("Mean squared error", "", 1.0),
    "rmse": ("Root mean squared error", "", 1.0),
    "mae": ("Mean absolute error", "", 1.0),
    "r2": ("R²", "", 1.0),
    "auc": ("Area under the ROC curve", "", 1.0),
    "f1_micro": ("F1, over all labels", "", 1.0),
    "f1_macro": ("F1, mean over labels", "", 1.0),
    "balanced_accuracy": ("Balanced accuracy", "%", 100.0),
    "top5_accuracy": ("Accuracy of the first five", "%", 100.0),
    "client_accuracy_mean": ("Accuracy, mean over clients", "%", 100.0),
    "client_accuracy_p10": ("Accuracy, worst tenth of clients", "%", 100.0),
    "client_accuracy_worst": ("Accuracy, worst client", "%", 100.0),
    "client_accuracy_std": ("Accuracy, standard deviation over clients", "%", 100.0),
    "client_loss_mean": ("Train loss, mean over clients", "", 1.0),
    "client_loss_p90": ("Train loss, worst tenth of clients", "", 1.0),
    "client_loss_worst": ("Train loss, worst client", "", 1.0),
    "client_loss_std": ("Train loss, standard deviation over clients", "", 1.0),
    "stationarity": ("Stationarity", "", 1.0),
    "density": ("Density of the model", "%", 100.0),
}
ON_A_TEST_SET = (
    "accuracy", "test_loss", "perplexity", "bits_per_byte", "mse", "rmse", "mae", "r2", "auc", "f1_micro", "f1_macro",
    "balanced_accuracy", "top5_accuracy",
)  # fmt: skip
"""What is measured on a validation set, too, and then recorded with `validation_` before it."""


def _of_validation(metric: str) -> tuple[str, tuple[str, str, float]]:
    """The key and the title of a test set's metric where it is of a validation set."""
    name, unit, factor = METRICS[metric]
    plain = name.removeprefix("Test ")
    return f"validation_{metric.removeprefix('test_')}", (f"{plain[0].upper()}{plain[1:]} (validation)", unit, factor)


METRICS |= dict(map(_of_validation, ON_A_TEST_SET))
AT_MOST_1 = tuple(
    f"{prefix}{name}" for prefix in ("", "validation_") for name in ("f1", "f1_micro", "f1_macro", "auc", "r2")
)
"""Measures without a unit that are at most 1: their axes are never logarithmic."""
AXES = {  # key -> (name on an axis, name on a switch)
    "wire_bytes": ("Sent on the wire, up and down", "Wire bytes"),
    "paper_bytes": ("Sent by the paper's count, up and down", "Paper's bytes"),
    "round": ("Round", "Rounds"),
    "wall_s": ("Wall time", "Wall time"),
    "network_s": ("Simulated network time", "Network time"),
    "sim_s": ("Simulated time on the run's network", "Simulated time"),
}
COMPRESSORS = {
    "topk": "Top-k", "randk": "Rand-k", "layerwise_topk": "Top-k by layer", "blockwise_topk": "Top-k by block",
    "block_topk": "largest blocks", "dct_topk": "Top-k of cosines", "stc": "STC", "scaled_sign": "scaled signs",
    "one_bit": "1-bit SGD", "three_lc": "3LC", "terngrad": "TernGrad", "qsgd": "QSGD", "natural": "powers of two",
    "drive": "DRIVE", "eden": "EDEN", "powersgd": "PowerSGD", "auto": "chosen by the run",
}  # fmt: skip
VALUES = {
    "native": "floats", "float32": "floats", "float16": "16-bit floats", "bfloat16": "16-bit floats",
    "uniform8": "8 bits", "uniform4": "4 bits", "uniform2": "2 bits", "sign": "signs", "powers": "powers of two",
    "log4": "4 bits, logarithmic", "log3": "3 bits, logarithmic", "log2": "2 bits, logarithmic",
}  # fmt: skip
METHODS = {
    "zhang": "Zhang et al.", "fedavg": "FedAvg", "fedda": "FedDA", "fedcanon": "FedCanon", "scaffold": "SCAFFOLD",
    "scafcom": "SCAFCOM", "scallion": "SCALLION", "fedprox": "FedProx", "fedadam": "FedAdam", "fedpaq": "FedPAQ",
    "fedmid": "FedMiD", "feddr": "FedDR", "feddyn": "FedDyn", "diloco": "DiLoCo", "sparseloco": "SparseLoCo",
    "demo": "DeMo", "ef21": "EF21", "ef21_prox": "EF21-Prox", "ef21_sgdm": "EF21-SGDM", "fed_ef": "Fed-EF",
}  # fmt: skip
REGULARIZERS = {"l1": "ℓ1", "l2_norm": "ℓ2 norm", "linf": "ℓ∞", "tv": "total variation", "mcp": "MCP", "scad": "SCAD",
                "l0": "ℓ0", "nuclear": "nuclear norm", "zero": "none"}  # fmt: skip
DATASETS = {"cifar10": "CIFAR-10", "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}


def metric_title(metric: str) -> str:
    """A metric's name with its unit."""
    name, unit, _ = METRICS[metric]
    return f"{name} ({unit})" if unit else name


def compressor_title(name: str, values: str = "") -> str:
    """How a compressor sends, in words: "Top-k, 4 bits"."""
    return ", ".join(part for part in (COMPRESSORS.get(name, spaced(name)), VALUES.get(values, spaced(values))) if part)


def method_title(name: str) -> str:
    """A method's name in print."""
    return METHODS.get(name, spaced(name))


def regularizer_title(name: str) -> str:
    """A regulariser's name in print."""
    return REGULARIZERS.get(name, spaced(name))


def spaced(name: str) -> str:
    """A name of the settings as words."""
    return name.replace("_", " ")


def dataset_title(name: str) -> str:
    """A data set's name in print; the name itself where there is no other."""
    return DATASETS.get(name, name)
