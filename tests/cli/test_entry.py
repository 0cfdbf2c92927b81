"""The entry point: it starts quickly, and says what to install."""

import subprocess
import sys
from pathlib import Path

from tests.cli.invoke import ENVIRONMENT, process

import filet


def test_the_command_line_loads_nothing_heavy_for_help():
    script = (
        "import sys, types, importlib.util\n"
        "package = types.ModuleType('filet')\n"
        "package.__path__ = [sys.argv[1]]; package.__version__ = '0'\n"
        "sys.modules['filet'] = package\n"
        "import filet.cli.commands.answers\n"
        "heavy = {'numpy', 'scipy', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "sys.exit(' '.join(heavy) or 0)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", script, str(Path(filet.__file__).parent)], capture_output=True,
                             text=True, timeout=60, check=False)  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr


def test_without_click_the_extra_to_install_is_named():
    script = "import sys; sys.modules['click'] = None; from filet.cli.entry import main; main()"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
                             env=ENVIRONMENT, check=False)  # fmt: skip
    assert outcome.returncode == 1
    assert outcome.stderr == "filet: the command line needs click; install it with: pip install 'filet[cli]'\n"


def test_the_module_is_the_command():
    for module in ("filet", "filet.cli.entry"):
        outcome = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60,
                                 env=ENVIRONMENT, check=False)  # fmt: skip
        assert (outcome.returncode, outcome.stdout) == (0, f"filet {filet.__version__}\n")
    assert process("fillet").returncode == 2
