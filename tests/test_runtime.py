"""The settings of the process."""

import os
import subprocess
import sys

import pytest

from paragrain.runtime import cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_cores_are_those_that_this_process_may_use() -> None:
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
    code += "from paragrain.runtime import cores; print(cores())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) == 1
    assert cores() == len(os.sched_getaffinity(0))
