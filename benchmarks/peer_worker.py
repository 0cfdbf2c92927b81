"""One peer in its own process and environment: settings come in as lines of JSON, values and times go out.

    python benchmarks/peer_worker.py PEER

The first line out says that the peer is imported and warm, and its versions. Every function below is the shortest way
that the peer's own documentation gives to an epsilon, with the peer's default accuracy.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from common import plain, timed, versions

Setting = dict[str, Any]


def dp_accounting_pld(s: Setting) -> float:
    dpa = import_module("dp_accounting")
    if s["cap"] < s["n"]:
        event = dpa.TruncatedSubsampledGaussianDpEvent(s["n"], s["p"], s["cap"], s["sigma"])
    else:
        event = dpa.PoissonSampledDpEvent(s["p"], dpa.GaussianDpEvent(s["sigma"]))
    return float(dpa.pld.PLDAccountant().compose(event, s["steps"]).get_epsilon(s["delta"]))


def dp_accounting_rdp(s: Setting) -> float:
    dpa = import_module("dp_accounting")
    event = dpa.PoissonSampledDpEvent(s["p"], dpa.GaussianDpEvent(s["sigma"]))
    return float(dpa.rdp.RdpAccountant().compose(event, s["steps"]).get_epsilon(s["delta"]))


def jax_privacy(s: Setting) -> float:
    accounting = import_module("jax_privacy.accounting")
    cap = s["cap"] if s["cap"] < s["n"] else None
    parameters = accounting.DpParams(
        noise_multipliers=s["sigma"],
        num_samples=s["n"],
        delta=s["delta"],
        batch_size=round(s["p"] * s["n"]),
        truncated_batch_size=cap,
    )
    accountant = accounting.DpsgdTrainingAccountant(accounting.PldAccountantConfig())
    return float(accountant.compute_epsilon(s["steps"], parameters))


def opacus(kind: str) -> Callable[[Setting], float]:
    def epsilon(s: Setting) -> float:
        accountants = import_module("opacus.accountants")
        accountant = {"prv": accountants.PRVAccountant, "rdp": accountants.RDPAccountant}[kind]()
        accountant.history = [(s["sigma"], s["p"], s["steps"])]
        return float(accountant.get_epsilon(s["delta"]))

    return epsilon


def prv_accountant(s: Setting) -> float:
    prv = import_module("prv_accountant")
    mechanism = prv.PoissonSubsampledGaussianMechanism(noise_multiplier=s["sigma"], sampling_probability=s["p"])
    accountant = prv.PRVAccountant(
        prvs=[mechanism], max_self_compositions=[s["steps"]], eps_error=0.01, delta_error=s["delta"] / 1000
    )
    return float(accountant.compute_epsilon(s["delta"], [s["steps"]])[2])


def tensorflow_privacy(s: Setting) -> float:
    sys.skip_tf_privacy_import = True  # type: ignore[attr-defined]  # the package's own switch: no TensorFlow
    library = import_module("tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib")
    import_module("absl.logging").set_verbosity("error")
    epochs = (s["steps"] - 0.5) * s["p"]  # it rounds up to whole steps
    return float(library.compute_dp_sgd_privacy(1.0, s["p"], s["sigma"], epochs, s["delta"])[0])


def autodp(s: Setting) -> float:
    zoo, transformers = import_module("autodp.mechanism_zoo"), import_module("autodp.transformer_zoo")
    mechanism = zoo.GaussianMechanism(s["sigma"])
    mechanism.neighboring = "add_remove"
    sampled = transformers.AmplificationBySampling(PoissonSampling=True)(mechanism, s["p"], improved_bound_flag=True)
    return float(transformers.Composition()([sampled], [s["steps"]]).get_approxDP(s["delta"]))


PEERS: dict[str, tuple[Callable[[Setting], float], tuple[str, ...]]] = {
    "dp_accounting PLD": (dp_accounting_pld, ("dp-accounting", "numpy", "scipy")),
    "dp_accounting RDP": (dp_accounting_rdp, ("dp-accounting", "numpy", "scipy")),
    "jax_privacy": (jax_privacy, ("jax-privacy", "dp-accounting", "jax", "numpy")),
    "Opacus PRV": (opacus("prv"), ("opacus", "torch", "numpy")),
    "Opacus RDP": (opacus("rdp"), ("opacus", "torch", "numpy")),
    "prv_accountant": (prv_accountant, ("prv-accountant", "numpy", "scipy")),
    "tensorflow-privacy": (tensorflow_privacy, ("tensorflow-privacy", "dp-accounting", "numpy", "scipy")),
    "autodp": (autodp, ("autodp", "numpy", "scipy")),
}
MEMORY = 8 << 30  # a peer that asks for more gets a MemoryError, and the machine stays usable
WARM_UP = {"n": 10_000, "p": 0.01, "cap": 10_000, "sigma": 2.0, "steps": 100, "delta": 1e-4}


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(plain(answer)), file=ANSWERS, flush=True)


def give_up(*_: Any) -> None:
    raise TimeoutError("stopped: too slow")


def main() -> None:
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, give_up)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    epsilon, packages = PEERS[sys.argv[1]]
    try:
        epsilon(WARM_UP)
    except Exception as error:
        say({"error": one_line(error)})
        return
    say({"versions": versions(*packages)})
    for line in sys.stdin:
        setting = json.loads(line)
        try:
            signal.setitimer(signal.ITIMER_PROF, setting["limit"])
            value, ms = timed(lambda setting=setting: epsilon(setting), seconds=0.5)  # type: ignore[misc]
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            say({"epsilon": value if not math.isnan(value) else "nan", "ms": ms})
        except Exception as error:  # whatever the peer raises is its answer
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            say({"error": one_line(error)})


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


if __name__ == "__main__":
    ANSWERS = sys.stdout
    sys.stdout = sys.stderr  # a peer that prints must not spoil the answers
    main()
