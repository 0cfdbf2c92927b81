"""Every integration, without its framework."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

EXTRAS = [
    ("torch", "torch", "torch"),
    ("opacus", "opacus", "opacus"),
    ("jax", "jax", "jax"),
    ("jax_privacy", "jax_privacy", "jax-privacy"),
    ("dp_accounting", "dp_accounting", "dp-accounting"),
    ("grain", "grain", "grain"),
    ("keras", "keras", "keras"),
    ("huggingface", "transformers", "huggingface"),
    ("lightning", "lightning", "lightning"),
    ("beam", "apache_beam", "beam"),
    ("flower", "flwr", "flower"),
    ("spark", "pyspark", "spark"),
    ("ray", "ray", "ray"),
]


@pytest.mark.parametrize(("module", "framework", "extra"), EXTRAS)
def test_a_missing_framework_names_the_extra(module, framework, extra):
    code = f"""
        import sys
        sys.modules[{framework!r}] = None
        import filet
        try:
            import filet.integrations.{module}
        except filet.MissingExtraError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert f"pip install 'filet[{extra}]'" in result.stdout
