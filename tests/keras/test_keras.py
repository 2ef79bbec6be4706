"""`npgm.keras` on each backend, which a process chooses when it imports Keras."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1] / "support" / "keras_suite.py"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_has_our_optimizers_pass_its_own_tests(backend):
    environment = {**os.environ, "KERAS_BACKEND": backend, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run([sys.executable, SUITE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
