"""How metrics, axes and data sets are called in print."""

METRICS = {  # key -> (name, name of the unit, factor)
    "accuracy": ("Test accuracy", "%", 100.0),
    "gap": ("Gap to the optimum, F(z) - F*", "", 1.0),
    "objective": ("Objective", "", 1.0),
    "f1": ("F1 of the support", "", 1.0),
    "train_loss": ("Train loss", "", 1.0),
    "test_loss": ("Test loss", "", 1.0),
    "perplexity": ("Perplexity", "", 1.0),
    "bits_per_byte": ("Bits per byte", "", 1.0),
    "r2": ("R²", "", 1.0),
    "auc": ("Area under the ROC curve", "", 1.0),
    "f1_macro": ("F1, mean over labels", "", 1.0),
    "balanced_accuracy": ("Balanced accuracy", "%", 100.0),
    "top5_accuracy": ("Accuracy of the first five", "%", 100.0),
    "client_accuracy_p10": ("Accuracy, worst tenth of clients", "%", 100.0),
    "client_accuracy_worst": ("Accuracy, worst client", "%", 100.0),
    "client_loss_p90": ("Train loss, worst tenth of clients", "", 1.0),
    "client_loss_worst": ("Train loss, worst client", "", 1.0),
    "stationarity": ("Stationarity", "", 1.0),
    "density": ("Density of the model", "%", 100.0),
}
AXES = {  # key -> (name on an axis, name on a switch)
    "wire_bytes": ("Sent on the wire, up and down", "Wire bytes"),
    "paper_bytes": ("Sent by the paper's count, up and down", "Paper's bytes"),
    "round": ("Round", "Rounds"),
    "wall_s": ("Wall time", "Wall time"),
    "network_s": ("Simulated network time", "Network time"),
    "sim_s": ("Simulated time on the run's network", "Simulated time"),
}
DATASETS = {"cifar10": "CIFAR-10", "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}


def metric_title(metric: str) -> str:
    """A metric's name with its unit."""
    name, unit, _ = METRICS[metric]
    return f"{name} ({unit})" if unit else name


def dataset_title(name: str) -> str:
    """A data set's name in print; the name itself where there is no other."""
    return DATASETS.get(name, name)
