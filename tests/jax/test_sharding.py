"""Parameters that are sharded over a mesh with explicit axes."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_mesh_with_explicit_axes_gives_what_one_device_gives():
    program = Path(__file__).parents[1] / "support" / "sharded.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
