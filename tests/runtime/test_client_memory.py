"""A host keeps what its clients remember; whatever goes astray, a client never gets a row that is not its own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fedsim.runtime.jobs import Batch, Reply
from fedsim.runtime.ray.host import HeldMemory, MemoryAtHost, SentBatch


def batch_of(clients, replica=0, round=0, **memory):
    who = np.asarray(clients, np.int64)
    return Batch(round, np.full(len(who), replica), who, np.zeros_like(who), {}, np.zeros_like(who), memory)


def reply_of(**memory):
    return Reply({}, np.zeros(0, np.int64), memory)


def rows(*values, width=1):
    return np.repeat(np.array(values, np.float64)[:, None], width, axis=1)


def visit(ledger, host, batch, left):
    """One call that goes well; returns how many rows travelled."""
    light = ledger.to_send(batch)
    complete = host.complete(pickle.loads(pickle.dumps(light)))
    assert complete is not None
    assert all(complete.memory[n].tobytes() == m.tobytes() for n, m in batch.memory.items())
    host.keep(complete, light.call, reply_of(**left))
    ledger.note(batch, light.call, reply_of(**left))
    return int(light.sent.sum())


@pytest.mark.parametrize("width", [1, 2, 3, 50])
def test_a_row_that_was_committed_does_not_travel_again(width):
    ledger, host = MemoryAtHost(), HeldMemory()
    first, second = rows(1, 2, 3, width=width), rows(4, 5, 6, width=width)
    assert visit(ledger, host, batch_of([0, 3, 7], c=first), {"c": second}) == 3
    assert visit(ledger, host, batch_of([0, 3, 7], c=second), {"c": first}) == 0
    assert visit(ledger, host, batch_of([7, 0], c=first[[2, 0]]), {"c": first[:2]}) == 0


def test_a_row_that_was_left_behind_and_not_committed_is_replaced():
    ledger, host = MemoryAtHost(), HeldMemory()
    visit(ledger, host, batch_of([0, 1], c=rows(0, 0)), {"c": rows(1, 2)})
    # Client 1's reply came late: it remembers 0 still. Only its row travels.
    assert visit(ledger, host, batch_of([0, 1], c=rows(1, 0)), {"c": rows(3, 4)}) == 1


def test_a_client_at_work_is_sent_its_row():
    """Its host will hold something else by the time the second job gets there."""
    ledger, host = MemoryAtHost(), HeldMemory()
    visit(ledger, host, batch_of([0], c=rows(0)), {"c": rows(1)})
    assert [ledger.to_send(batch_of([0], c=rows(1))).sent.tolist() for _ in range(2)] == [[False], [True]]


def test_replicas_and_newcomers_have_rows_of_their_own():
    ledger, host = MemoryAtHost(), HeldMemory()
    for replica in (0, 5):
        assert visit(ledger, host, batch_of([0, 1], replica, c=rows(0, 0)), {"c": rows(1, replica + 2)}) == 2
    for replica in (5, 0):
        both = batch_of([2, 1, 0], replica, c=rows(9, replica + 2, 1))
        assert visit(ledger, host, both, {"c": rows(7, 7, 7)}) == 1


def test_zeros_of_either_sign_differ():
    ledger, host = MemoryAtHost(), HeldMemory()
    visit(ledger, host, batch_of([0], c=rows(1)), {"c": rows(0.0)})
    assert visit(ledger, host, batch_of([0], c=rows(-0.0)), {"c": rows(1)}) == 1


def test_a_host_keeps_what_would_be_committed():
    """What a client does not return stays as it was, and what it returns takes the memory's type."""
    ledger, host = MemoryAtHost(), HeldMemory()
    before = {"a": rows(1, 2).astype(np.float32), "b": rows(3, 4, width=9)}
    visit(ledger, host, batch_of([0, 1], **before), {"a": rows(0.1, 0.2)})
    after = {"b": before["b"], "a": rows(0.1, 0.2).astype(np.float32)}  # in whatever order
    assert visit(ledger, host, batch_of([0, 1], **after), {}) == 0


def test_without_memory_nothing_is_kept_and_nothing_added():
    ledger, host = MemoryAtHost(), HeldMemory()
    batch = batch_of([0, 1])
    light = ledger.to_send(batch)
    assert light.batch is batch
    assert host.complete(light) is batch
    host.keep(batch, light.call, reply_of())
    ledger.note(batch, light.call, reply_of())


def test_a_new_host_says_that_it_lacks_a_row():
    ledger, host = MemoryAtHost(), HeldMemory()
    visit(ledger, host, batch_of([0, 1], c=rows(0, 0)), {"c": rows(1, 2)})
    batch = batch_of([0, 1], c=rows(1, 2))
    assert HeldMemory().complete(ledger.to_send(batch)) is None
    assert HeldMemory().complete(SentBatch.full(batch)).memory["c"].tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("seed", range(5))
def test_no_order_of_events_gives_a_client_a_wrong_row(seed):
    """Calls run in any order, answers arrive in any order, replies are aggregated or not, hosts die."""
    rng = np.random.default_rng(seed)
    ledger, host = MemoryAtHost(), HeldMemory()
    committed = {c: float(c) for c in range(6)}
    calls, answers, kept, missed = [], [], 0, 0
    for step in range(1, 600):
        happens = rng.choice(["send", "run", "hear", "die"], p=[0.38, 0.3, 0.3, 0.02])
        if happens == "send":
            batch = batch_of(
                who := rng.choice(6, rng.integers(1, 4), replace=False), c=rows(*(committed[c] for c in who))
            )
            calls.append((batch, ledger.to_send(batch)))
        elif happens == "run" and calls:
            batch, light = calls.pop(rng.integers(len(calls)))
            complete = host.complete(light)
            kept, missed = kept + int((~light.sent).sum()), missed + (complete is None)
            if complete is None:
                light = SentBatch.full(batch)
                complete = host.complete(light)
            assert complete.memory["c"].tolist() == batch.memory["c"].tolist()
            left = rows(*(100.0 * step + batch.client))
            host.keep(complete, light.call, reply_of(c=left))
            answers.append((batch, light.call, left))
        elif happens == "hear" and answers:
            batch, call, left = answers.pop(rng.integers(len(answers)))
            ledger.note(batch, call, reply_of(c=left))
            if rng.random() < 0.7:
                committed |= dict(zip(batch.client.tolist(), left[:, 0].tolist(), strict=True))
        elif happens == "die":
            host = HeldMemory()
            ledger = MemoryAtHost() if rng.random() < 0.5 else ledger  # and the driver may not know yet
    assert kept > 20
    assert missed > 2
