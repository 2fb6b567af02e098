"""FedCEF as one would write it first: what the simulator is measured against.

The network as Conv-ReLU-Pool in the default memory format, one client after the other, gradients by backward(), the
same corrections, clipping, proximal steps and Top-k on flat vectors; eager PyTorch throughout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedcef import Problem


class PlainLoop:
    def __init__(
        self,
        task: Problem,
        model: nn.Module,
        *,
        local_lr: float,
        local_steps: int,
        batch: int,
        ratio: float,
        clip_norm: float | None = None,
        bfloat16: bool = False,
    ) -> None:
        self.task, self.lr, self.steps, self.batch, self.ratio = task, local_lr, local_steps, batch, ratio
        self.clip_norm, self.bfloat16 = clip_norm, bfloat16
        self.z, self.c = task.z0.clone(), torch.zeros_like(task.z0)
        self.model = model.to(self.z.device)
        self.c_i = [torch.zeros_like(self.z) for _ in range(task.num_clients)]
        self.v_i = [torch.zeros_like(self.z) for _ in range(task.num_clients)]

    def gradient(self, x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        nn.utils.vector_to_parameters(x, self.model.parameters())
        self.model.zero_grad()
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = nn.functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        return torch.cat([p.grad.reshape(-1) for p in self.model.parameters() if p.grad is not None])

    def round(self) -> None:
        prox, total, clients = self.task.regularizer.prox, torch.zeros_like(self.z), len(self.c_i)
        for i in range(clients):
            samples = self.task.client_samples(i)
            x_hat, x, mean = self.z.clone(), self.z, torch.zeros_like(self.z)
            for k in range(self.steps):
                rows = torch.randint(0, len(samples), (self.batch,), device=self.z.device)
                g = self.gradient(x, samples.inputs[rows], samples.targets[rows])
                mean += g / self.steps
                x_hat -= self.lr * (g + self.c - self.c_i[i])
                x = prox(x_hat, (k + 1) * self.lr)
            self.v_i[i] = mean
            change = self.v_i[i] - self.c_i[i]
            kept = change.abs().topk(int(self.ratio * len(change))).indices
            self.c_i[i][kept] += change[kept]
            total[kept] += change[kept]
        self.c += total / clients
        self.z = prox(self.z - self.lr * self.steps * self.c, self.lr * self.steps)


def plain_cnn(channels: int, blocks: tuple[tuple[int, ...], ...], features: int, hidden: int) -> nn.Sequential:
    """The paper's networks in the usual order: ReLU after every convolution, pooling at the end of a block."""
    layers: list[nn.Module] = []
    for block in blocks:
        for out in block:
            layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU()]
            channels = out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 10))
