"""The kernels of notebooks are forked from one process that has imported torch.

To start forty kernels and to import NumPy and torch in each takes longer than what they compute.
So nbval's kernels come from multiprocessing's server of forks, which imports the packages
once. A notebook cannot tell: it has the same packages, paths and arguments as in a kernel of its
own. `make colab` starts each kernel anew.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import nbval.kernel

# torch imports torch._dynamo, which takes a second, before its first optimizer or operator of ours.
# The ranks of a ring need it too: a process of pytest has one server, for kernels and for ranks.
PRELOADED = [
    "ipykernel.kernelapp", "ipykernel.zmqshell", "matplotlib.pyplot", "torch", "torch._dynamo",
]
BACKEND = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # Matplotlib's in a kernel


def paths() -> list[str]:
    """Return where a new Python looks for modules; here, pytest has added folders."""
    code = "import json, sys; print(json.dumps(sys.path))"
    found: list[str] = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    return found


def run(arguments: list[str], folder: str, variables: dict[str, str], path: list[str]) -> None:
    """Be the kernel: in the child, `python -m ipykernel_launcher ARGUMENTS`."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.path[:] = path
    sys.argv[:] = arguments
    for name in {"random", "numpy.random"} & sys.modules.keys():
        sys.modules[name].seed()  # what nobody has seeded differs from run to run
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)


class Kernel:
    """A forked kernel, for those who expect a `subprocess.Popen`."""

    stdin = stdout = None

    def __init__(self, process: Any, stderr: Any) -> None:
        self.process, self.pid = process, process.pid
        self.stderr = stderr  # the manager closes it

    def poll(self) -> int | None:
        code: int | None = self.process.exitcode
        return code

    def wait(self) -> int | None:
        self.process.join()
        return self.poll()

    def send_signal(self, signal: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.kill(self.pid, signal)

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        self.process.terminate()


class Forks:
    """What takes the place of jupyter_client's `launch_kernel`."""

    def __init__(self) -> None:
        self.context: Any = None
        self.path: list[str] = []

    def __call__(self, command: list[str], cwd: str, env: dict[str, str], **options: Any) -> Kernel:
        if self.context is None:
            self.context = multiprocessing.get_context("forkserver")
            self.context.set_forkserver_preload(PRELOADED)
            self.path = paths()
        module, *arguments = command[command.index("-m") + 1 :]
        variables = {name: value for name, value in env.items() if name != "JPY_PARENT_PID"}
        given = ([module, *arguments], cwd, variables, self.path)
        process = self.context.Process(target=run, args=given)
        with mock.patch.dict(os.environ, BACKEND):
            process.start()
        # The manager ends the group of the kernel, which must not be ours any more.
        while process.is_alive() and os.getpgid(process.pid) != process.pid:
            time.sleep(0.001)
        return Kernel(process, options.get("stderr"))


def patiently(start: Callable[..., Any]) -> Callable[..., Any]:
    """Return nbval's `start_new_kernel`, which begins again where a kernel died before it answered.

    The manager looks for free ports and lets them go again, for the kernel to take. Another process
    may take one first, and then the kernel ends at once. The next one gets other ports.
    """

    def start_new_kernel(*arguments: Any, **options: Any) -> Any:
        for left in (2, 1, 0):
            try:
                return start(*arguments, **options)
            except RuntimeError as error:
                if not left or "Kernel died" not in str(error):
                    raise

    return start_new_kernel


def pytest_configure() -> None:
    """Fork kernels on Linux; elsewhere a fork of torch is not safe."""
    nbval.kernel.start_new_kernel = patiently(nbval.kernel.start_new_kernel)
    if sys.platform == "linux":
        from jupyter_client.provisioning import local_provisioner

        local_provisioner.launch_kernel = Forks()  # type: ignore[assignment]
