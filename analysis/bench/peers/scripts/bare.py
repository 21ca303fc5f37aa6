"""No framework: FedAvg as a plain NumPy loop over clients, one thread."""

from __future__ import annotations

import numpy as np
from workloads import Record, local_sgd


def main() -> None:
    record = Record(fresh=0)
    fresh = bool(record.given.fresh)
    w, (x, y) = record.workload, record.load()
    rng, parameters = np.random.default_rng(1), w.start()
    record.begin()
    for _ in range(w.rounds):
        everyone = w.cohort == w.clients
        cohort = np.arange(w.clients) if everyone else rng.choice(w.clients, w.cohort, replace=False)
        total = [np.zeros_like(p) for p in parameters]
        for client in cohort:
            rows = w.rows(int(client))
            for part, reply in zip(total, local_sgd(w, parameters, x[rows], y[rows], rng, fresh), strict=True):
                part += reply
        parameters = [part / np.float32(w.cohort) for part in total]
        record.end()
    record.write(parameters, w.rounds * w.cohort)


if __name__ == "__main__":
    main()
