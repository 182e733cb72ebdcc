"""A child of the fork server computes on the device: what the server imports before it forks does not use it."""

from __future__ import annotations

import subprocess
import sys

from on_gpu import OnGpu

CODE = """
import os, sys, torch, torch._dynamo
from syno.base.fork_server import can_fork
import syno.train.training_record
assert can_fork()
child = os.fork()
if child == 0:
    os._exit(int(torch.ones(7, device=sys.argv[1]).sum().item()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Forks(OnGpu):
    def test_a_child_computes_after_the_imports_of_its_parent(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", CODE, self.device], capture_output=True, text=True, check=False, timeout=300
        )
        self.assertEqual((done.returncode, done.stderr), (7, ""))
