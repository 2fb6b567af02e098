"""A run folder that grows as the test says."""

import json

CONFIG = """\
label = {label}
name = "test"
rounds = 20
seed = {seed}
{extra}
[algorithm]
name = "fedcef"

[data]
name = "digits"
"""


def line(t, **more):
    """A record as the simulator writes it: half a second per round, evaluated every other one."""
    record = {"round": t, "wire_up_bytes": 1000 * t, "wire_down_bytes": 2500 * t, "paper_up_bytes": 4000 * t}
    record |= {"paper_down_bytes": 4000 * t, "wall_s": 0.5 * t}
    if t % 2 == 0:
        record |= {"accuracy": 0.9 * t / 20, "train_loss": 2.0 * 0.8**t, "objective": 2.0 * 0.8**t, "density": 0.25}
    return record | more


class Growing:
    def __init__(self, folder, label="FedCEF", seed=0, extra=""):
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "rounds.jsonl").write_text("")
        (folder / "config.toml").write_text(CONFIG.format(label=json.dumps(label), seed=seed, extra=extra))

    def write(self, text):
        with (self.folder / "rounds.jsonl").open("a") as file:
            file.write(text)

    def rounds(self, *numbers, **more):
        self.write("".join(json.dumps(line(t, **more)) + "\n" for t in numbers))
        return self

    def end(self, status="finished", rounds=20):
        (self.folder / "summary.json").write_text(json.dumps({"status": status, "rounds": rounds}))
        return self
