"""What commands ask the library: checked options in, the inputs and the result of an answer out; the explorer asks the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError, NotCertifiedError
from .options import ANALYSES, OVERFLOWS, required
from .output import describe_run

if TYPE_CHECKING:
    from .._progress import Progress
    from ..accounting.terms import Bounds
    from ..planning.planner import Plan
    from ..scheme import CappedPoisson
    from .run_file import RunFile


def epsilon_inputs(run: RunFile, delta: float) -> dict[str, Any]:
    return {**describe_run(run.curve), "delta": delta, "max_epsilon": run.max_epsilon}


def epsilon_result(run: RunFile, bounds: Bounds, attack: float | None) -> dict[str, Any]:
    met = None if run.max_epsilon is None else bounds.upper <= run.max_epsilon
    return {"epsilon": bounds.upper, "epsilon_lower": bounds.lower, "attack_epsilon": attack, "target_met": met}


def known_attack(run: RunFile, delta: float) -> float | None:
    """The best known lower bound on the true epsilon; None for runs of several phases."""
    from ..accounting.lower_bounds import epsilon_lower_bound

    phases = run.accountant.phases
    if len(phases) != 1 or run.curve.gaussian:
        return None
    phase = phases[0]
    try:
        return epsilon_lower_bound(
            phase.scheme, noise_multiplier=phase.noise_multiplier, steps=phase.steps,
            adjacency=run.accountant.adjacency, delta=delta,
        )  # fmt: skip
    except NotCertifiedError:
        return None


@dataclass(frozen=True)
class Comparison:
    """One run under every policy and analysis: what is compared, and each row of the answer."""

    scheme: CappedPoisson
    noise_multiplier: float
    steps: int
    delta: float

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> Comparison:
        """The run that the options describe; both policies are shown, so none may be given."""
        from .. import _checks
        from .run_file import make_scheme, make_steps

        if options.get("overflow"):
            raise InvalidArgumentError("overflow has no place here; compare shows both policies")
        delta = float(_checks.delta_array(float(required(options, "delta"))))
        for name in ("dataset_size", "max_batch_size", "noise_multiplier"):
            required(options, name)
        scheme = make_scheme(options, "the command line")
        steps = make_steps(options, scheme, "the command line")
        return cls(scheme, _checks.noise_multiplier(options["noise_multiplier"]), steps, delta)

    def inputs(self, adjacencies: list[str]) -> dict[str, Any]:
        asked = {key: entry for key, entry in self.scheme.to_dict().items() if key != "overflow"}
        run = {"noise_multiplier": self.noise_multiplier, "steps": self.steps, "delta": self.delta}
        return {**asked, **run, "adjacency": adjacencies}

    def changed(self, policy: str) -> CappedPoisson:
        """The scheme under a policy; "no cap" is plain Poisson sampling with batches of any size."""
        if policy == "no cap":
            return replace(self.scheme, max_batch_size=self.scheme.group_size)
        return replace(self.scheme, overflow=policy)  # type: ignore[arg-type]

    def row(self, policy: str, analysis: str, adjacencies: list[str]) -> dict[str, Any]:
        """A row whose epsilons are still to be computed."""
        used = None
        if policy != "no cap" and not self._impossible(policy):
            used = self.changed(policy).utilization
        return {"policy": policy, "analysis": analysis, "utilization": used, "epsilon": dict.fromkeys(adjacencies)}

    def entry(self, policy: str, analysis: str, adjacency: str) -> tuple[float | None, str | None]:
        """An epsilon of a row; or None, and why there is none."""
        why_not = self._impossible(policy)
        if why_not is None:
            try:
                return self.epsilon(policy, analysis, adjacency), None
            except NotCertifiedError as error:
                why_not = str(error)
        return None, why_not

    def _impossible(self, policy: str) -> str | None:
        """Why a policy has no batch at all; only reject can be impossible where the others are not."""
        try:
            self.changed(policy)
        except InvalidArgumentError as error:
            if policy != "reject":
                raise
            return str(error)
        return None

    def epsilon(self, policy: str, analysis: str, adjacency: str) -> float:
        """The certified upper bound of an analysis; with "attack" the lower bound that an explicit attack proves."""
        from ..accounting.accountant import account
        from ..accounting.lower_bounds import epsilon_lower_bound

        given: dict[str, Any] = {"noise_multiplier": self.noise_multiplier, "steps": self.steps, "adjacency": adjacency}
        scheme = self.changed(policy)
        if analysis == "attack":
            return epsilon_lower_bound(scheme, delta=self.delta, **given)
        return float(account(scheme, analysis=analysis, **given).epsilon(self.delta))


def compared_kinds() -> list[tuple[str, str]]:
    """Policy and analysis of each row: no cap at all, every analysis that a policy has, and the attack on it."""
    kinds = [("no cap", "refined")]
    for policy in OVERFLOWS:
        analyses = reversed(ANALYSES) if policy == "truncate" else ("refined",)
        kinds += [(policy, analysis) for analysis in (*analyses, "attack")]
    return kinds


@dataclass(frozen=True)
class Calibration:
    """What was looked for, the number that was found, and what it costs."""

    scheme: CappedPoisson
    target: dict[str, Any]
    inputs: dict[str, Any]
    result: dict[str, Any]


def calibrated(name: str, options: Mapping[str, Any]) -> Calibration:
    """The noise multiplier, the steps or the sampling probability (`name`) that meets the target among the options."""
    from ..accounting.accountant import account
    from ..planning import calibration

    target = _target(name, options)
    scheme, known = _known(name, options)
    found = getattr(calibration, f"calibrate_{name}")(scheme, **known, **target)
    if name == "sampling_probability":
        scheme, run = replace(scheme, sampling_probability=found), known
    else:
        run = {**known, name: found}
    spent = account(scheme, **run, adjacency=target["adjacency"], analysis=target["analysis"]).epsilon(target["delta"])
    inputs = {key: value for key, value in scheme.to_dict().items() if key != name}
    result = {name: found, "epsilon": spent, "utilization": scheme.utilization}
    return Calibration(scheme, target, {**inputs, **known, **target}, result)


def _target(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be met; the unknown itself must not be given."""
    taken = {"steps": ("steps", "epochs"), "sampling_probability": ("sampling_probability", "poisson_batch_size")}
    for given in taken.get(name, (name,)):
        if options.get(given) is not None:
            raise InvalidArgumentError(f"{given} is what is looked for; drop --{given.replace('_', '-')}")
    target = {key: required(options, key) for key in ("epsilon", "delta", "adjacency")}
    return {**target, "analysis": options.get("analysis") or "refined"}


def _known(name: str, options: Mapping[str, Any]) -> tuple[CappedPoisson, dict[str, Any]]:
    """The scheme, and the rest of the run that is not looked for."""
    from .. import _checks
    from .run_file import make_scheme, make_steps

    for key in ("dataset_size", "max_batch_size"):
        required(options, key)
    if name == "sampling_probability":
        if options.get("epochs") is not None:
            raise InvalidArgumentError("epochs depend on the sampling probability that is looked for; pass --steps")
        options = {**options, "sampling_probability": 0.5}  # any value will do: it is what is looked for
    scheme = make_scheme(options, "the command line")
    known: dict[str, Any] = {}
    if name != "noise_multiplier":
        known["noise_multiplier"] = _checks.noise_multiplier(required(options, "noise_multiplier"))
    if name != "steps":
        known["steps"] = make_steps(options, scheme, "the command line")
    return scheme, known


def planned(options: Mapping[str, Any], progress: Progress | None) -> tuple[dict[str, Any], Plan]:
    """The inputs of a plan, and the plan; `max_batch_size` and `steps` may be one number or several."""
    from ..planning import planner

    given = {name: required(options, name) for name in ("dataset_size", "epsilon", "delta", "adjacency")}
    given["max_batch_size"] = required({"max_batch_size": options.get("max_batch_size") or None}, "max_batch_size")
    if not options.get("steps") and options.get("hardware_epochs") is None:
        raise InvalidArgumentError("steps is missing; pass --steps, or --hardware-epochs")
    budget: dict[str, Any] = {name: options.get(name) for name in ("steps", "hardware_epochs", "cycle_length")}
    budget["cycle_length"] = budget["cycle_length"] or 1
    found = planner.plan(**given, **{**budget, "steps": budget["steps"] or None}, progress=progress)
    return {**given, **budget}, found
