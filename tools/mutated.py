"""What `mutants.py` changes, the tests that must notice, and the changes that nobody can see."""

from __future__ import annotations

OLD = [f"tests/test_old_folders.py::test_{name}_to_the_same_result" for name in (
    "a_run_from_python_resumes", "a_deployment_goes_on", "an_interrupted_run_resumes"
)]  # fmt: skip
ENGINE = [
    "tests/core/test_round.py",
    "tests/core/test_cohort_sizes.py",
    "tests/core/test_on_the_device.py",
    "tests/simulation/test_finite.py",
    "tests/simulation/test_engine.py",
    *OLD,
    "tests/deployment/test_parity.py",
]

TESTS: dict[str, list[str]] = {
    "algorithms/fedcef.py": [
        "tests/algorithms/test_golden.py",
        "tests/algorithms/test_updates.py::test_who_has_a_place_for_one",
        "tests/algorithms/test_identities.py",
        *OLD,
        "tests/algorithms/test_downlinks.py",
    ],
    "algorithms/received.py": ["tests/algorithms/test_received.py", "tests/simulation/test_engine.py", *OLD],
    "core/round.py": ENGINE,
    "simulation/engine.py": ENGINE,
    "simulation/ledger.py": ["tests/simulation/test_ledger.py", "tests/core/test_on_the_device.py", *OLD],
    "deployment/worker.py": [
        "tests/deployment/test_worker.py",
        "tests/deployment/test_worker_tells.py",
        "tests/deployment/test_worker_threads.py",
        "tests/deployment/test_parity.py",
        "tests/deployment/test_rejoin.py",
        "tests/deployment/test_private_noise.py",
    ],
    "deployment/checks.py": ["tests/deployment/test_admission.py"],
    "wire/log.py": ["tests/wire/test_log.py"],
    "core/disk.py": ["tests/core/test_disk.py", "tests/deployment/test_writes.py"],
}
"""The central modules, and the tests that are about them, quick ones first."""

EQUIVALENT: dict[tuple[str, str], str] = {
    ("if self.cohort_size >= len(connected):", ">="): "a subset of all of them, in order, is all of them",
    ("return torch.full((), number, dtype=torch.int64, device=self.device)", "dtype"): "torch takes int64 itself",
    ("nobody = torch.zeros(0, dtype=torch.int64, device=self.device)", "0"): "only what all clients share is used",
    (
        "return [connected[i] for i in rng.subset(key, len(connected), self.cohort_size).tolist()]",
        ".tolist()",
    ): "a number on the device is an index, too",
    ("self._samples = int(problem.sizes.sum())", ".sum()"): "a client's problem has this client alone",
    ("while good < len(view):", "< len"): "where the log ends there is no frame, which ends the loop, too",
    ("for match in _BEGINS.finditer(log, at + 1):", "+"): "no frame is whole there, nor within the next 22 bytes",
    ("for match in _BEGINS.finditer(log, at + 1):", "1"): "the same",
    (
        "if len(log) - at < FRAME.head_size or not any(log[at : at + FRAME.head_size]):",
        "len(log) - at < FRAME.head_size",
    ): "a header alone is no frame",
}
"""Mutants that change nothing that can be seen: the line, and the part of it that is gone -> why."""
