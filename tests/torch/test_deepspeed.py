"""DeepSpeed's ZeRO on 2 processes, where it is installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "support" / "deepspeed_stages.py"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs DeepSpeed")
def test_a_step_is_that_of_one_process_or_refused(tmp_path):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    run = subprocess.run(
        [sys.executable, *command, str(tmp_path / "results.pt")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    import deepspeed_stages

    for (name, stage), got in torch.load(tmp_path / "results.pt").items():
        if name == "IHGD" and stage > 0:
            assert "DeepSpeed's flattened parameters" in got
            continue
        net = deepspeed_stages.model()
        deepspeed_stages.loss(net).backward()
        deepspeed_stages.OPTIMIZERS[name](net.parameters(), lr=1.0).step()
        torch.testing.assert_close(got, [p.detach() for p in net.parameters()])
