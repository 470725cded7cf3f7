"""Run Python with another BLAS kernel than the one that OpenBLAS chooses for this processor.

    python tools/other_kernel.py -m pytest tests/test_golden.py

Another kernel rounds otherwise, as other processors do: what passes with both does not rest on
the last bits of this one.
"""

from __future__ import annotations

import os
import subprocess
import sys

#: Kernels by the kind of machine; the first that it can run and does not run already is chosen.
KERNELS = {"x86_64": ("Haswell", "Prescott"), "aarch64": ("NEOVERSEN1", "ARMV8")}
ASKED = """
import numpy.linalg, threadpoolctl
found = [one for one in threadpoolctl.threadpool_info() if one["internal_api"] == "openblas"]
print(found[0]["architecture"] if found else "")
"""


def kernel(env: dict[str, str]) -> str:
    """The kernel that numpy uses in such an environment; empty: its BLAS is not OpenBLAS."""
    command = (sys.executable, "-c", ASKED)
    return subprocess.run(
        command, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


def other_environment() -> dict[str, str]:
    """This environment with another kernel."""
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    own = kernel(env)
    if not own:
        print("BLAS is not OpenBLAS here: there is no other kernel", file=sys.stderr)
        return env
    for name in KERNELS.get(os.uname().machine, ()):
        found = env | {"OPENBLAS_CORETYPE": name}
        if name.lower() != own.lower() and kernel(found) not in ("", own):
            print(f"BLAS kernel {name} instead of {own}", file=sys.stderr)
            return found
    raise SystemExit(f"no other BLAS kernel than {own} could be chosen, expected one of {KERNELS}")


def main(arguments: list[str]) -> int:
    """Run Python with these arguments."""
    return subprocess.run((sys.executable, *arguments), env=other_environment()).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
