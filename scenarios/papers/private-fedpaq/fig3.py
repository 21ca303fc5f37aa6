"""Private FedPAQ, figure 3: quantisation levels s (a) and active devices M (b), by round."""

import _het

import fedsim as fs
from fedsim.reproduce import pick, plots

needs = ("mnist",)
KINDS = [
    "plain s=0 M=10",
    "plain s=10 M=10",
    "plain s=1 M=10",
    "plain s=10 M=1",
    "private s=10 M=1",
    "private s=10 M=10",
]
quick = {"kind": KINDS, "rounds": 12, "replicas": 3}
full = {"kind": KINDS, "rounds": 100, "replicas": 10}


def scenario(*, kind: str = KINDS[0], rounds: int = 12, replicas: int = 3) -> fs.Scenario:
    """s = 0 does not quantise; the seeds are the same, so that runs can be compared in pairs."""
    mode, s, chosen = kind.split()
    return _het.scenario(
        mode, levels=int(s[2:]), chosen=int(chosen[2:]), rounds=rounds, replicas=replicas, every=max(1, rounds // 20)
    )


def figure(study):
    names = {
        "(a) levels s, M = 10": {KINDS[0]: "not quantised", KINDS[1]: "s = 10", KINDS[2]: "s = 1"},
        "(b) active devices M, s = 10": {
            f"{mode} s=10 M={M}": f"{mode}, M = {M}" for mode in ("plain", "private") for M in (1, 10)
        },
    }
    content = {
        title: {name: plots.curve(pick(study, kind=kind), "loss") for kind, name in own.items()}
        for title, own in names.items()
    }
    return plots.panels(content, "communication rounds", "training loss")
