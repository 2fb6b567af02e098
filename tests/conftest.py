"""Kernels are tested on the GPU where there is one, and otherwise in Triton's interpreter."""

import os
import signal

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a script; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)
