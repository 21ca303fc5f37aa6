"""SimGrid's finishing times of a case of flows: a script for the Python that has Debian's python3-simgrid.

    /usr/bin/python3 analysis/bench/simgrid_flows.py < case.json > answer.json

The case has `capacities` (bytes per second), `routes`, `bytes` and `starts`; the answer `finish`, and `seconds`, the
processor time that the simulation itself took, without the building of its platform.
"""

from __future__ import annotations

import json
import os
import sys
import time

SETTINGS = (
    "network/model:CM02",  # flows share links max-min fairly, and nothing else
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "maxmin/precision:1e-12",
    "surf/precision:1e-12",
)


def main() -> None:
    answer, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)  # SimGrid talks on both
    from simgrid import Comm, Engine, LinkInRoute, NetZone, this_actor

    case = json.load(sys.stdin)
    engine = Engine(["flows", *(f"--cfg={setting}" for setting in SETTINGS)])
    zone = NetZone.create_full_zone("zone")
    links = [LinkInRoute(zone.create_link(f"link{k}", c).seal()) for k, c in enumerate(case["capacities"])]
    pairs: dict[tuple[int, ...], tuple[int, int]] = {}  # every route between two hosts of its own
    for route in case["routes"]:
        pairs.setdefault(tuple(route), (0, 0))
    side = int(len(pairs) ** 0.5) + 2
    hosts = [zone.create_host(f"host{i}", 1e9).seal() for i in range(side)]
    ends = ((a, b) for a in range(side) for b in range(side) if a != b)
    for route in pairs:
        a, b = pairs[route] = next(ends)
        zone.add_route(hosts[a].netpoint, hosts[b].netpoint, None, None, [links[k] for k in route], False)
    zone.seal()
    finish = [0.0] * len(case["routes"])

    def send() -> None:
        under_way = []
        for i in sorted(range(len(finish)), key=case["starts"].__getitem__):
            if case["starts"][i] > Engine.clock:
                this_actor.sleep_until(case["starts"][i])
            a, b = pairs[tuple(case["routes"][i])]
            under_way.append((i, Comm.sendto_async(hosts[a], hosts[b], case["bytes"][i])))
        Comm.wait_all([comm for _, comm in under_way])
        for i, comm in under_way:
            finish[i] = comm.finish_time

    from simgrid import Actor

    Actor.create("sender", hosts[0], send)
    begin = time.process_time()
    engine.run()
    json.dump({"finish": finish, "seconds": time.process_time() - begin}, answer)
    answer.flush()
    os._exit(0)  # its own way out is slow, and sometimes does not come to an end


if __name__ == "__main__":
    main()
