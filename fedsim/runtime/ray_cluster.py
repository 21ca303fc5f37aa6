"""Joining a cluster of Ray that somebody else has started."""

from __future__ import annotations

import logging
import re
import socket
from typing import Any

from fedsim.errors import InvalidInput, RuntimeFailed, quoted, shown


def check_address(address: Any) -> None:
    """Refuse what cannot be an address: Ray would look for minutes, or take it for something else."""
    good = r"auto|local|(ray://)?([\w.\-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}"
    fits = isinstance(address, str) and re.fullmatch(good, address, re.ASCII)
    if not fits or (":" in address and not 0 < int(address.rpartition(":")[2]) < 2**16):
        raise InvalidInput(f"Ray(address={quoted(address)}): write host:port, such as '10.0.0.1:6379', or 'auto'")


def join(ray: Any, address: object) -> None:
    """Join the cluster at `address`; where nobody listens, say so at once: Ray itself would try for minutes."""
    host, _, port = str(address).rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host.removeprefix("ray://").strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises a dozen kinds, by what is wrong with an address
        raise RuntimeFailed(
            f"Ray(address={quoted(address)}): no cluster answers there ({shown(error)}); start one with "
            "`ray start --head`, or leave the address out for a Ray on this machine alone"
        ) from None
