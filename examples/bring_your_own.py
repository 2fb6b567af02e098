"""Your own module, your own clients' data: a sparse tumour classifier trained over five hospitals."""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from fedcef import L1, FedCEF, Problem, TopK, run

# One (inputs, targets) pair for each client.  Here every hospital sees tumours of another size.
features, labels = map(torch.from_numpy, load_breast_cancer(return_X_y=True))
test = torch.arange(len(labels)) % 5 == 0
x = ((features - features[~test].mean(0)) / features[~test].std(0)).float()
by_radius = features[~test, 0].argsort().chunk(5)
hospitals = [(x[~test][rows], labels[~test][rows]) for rows in by_radius]

# Any module.  Its parameters, as they are now, are the start point.
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 2))

problem = Problem.build(
    model, nn.functional.cross_entropy, hospitals, test=(x[test], labels[test]), regularizer=L1(5e-3)
)
method = FedCEF(local_lr=0.1, local_steps=10, compressor=TopK(ratio=0.05))
history = run(problem, method, rounds=100, batch_size=32)

last = history.records[-1]
print(f"accuracy {last['accuracy']:.3f}, density {last['density']:.3f} of {problem.dim} parameters")
print(f"bytes up {last['wire_up_bytes']:,}, down {last['wire_down_bytes']:,}")

model.load_state_dict(history.parameters)  # the trained model, as any other PyTorch module
