"""A ServerApp polls, sleeps, waits with a timeout or asks which nodes are online; time is virtual."""

from __future__ import annotations

import contextlib
import threading
import time
from time import monotonic, sleep

import pytest

import fedsim as fs

STEP = {"seconds_per_step": [1.0, 2.0, 5.0]}  # of one example each


def content(*_):
    from flwr.app import MetricRecord, RecordDict

    return RecordDict({"metrics": MetricRecord({"num-examples": 1})})


def messages(grid, nodes=None, ttl=None):
    from flwr.app import Message, RecordDict

    return [Message(RecordDict(), node, "train", ttl=ttl) for node in (grid.get_node_ids() if nodes is None else nodes)]


def run(app_of, server, client=content, devices=None, **more):
    devices = fs.devices.constant(**STEP) if devices is None else devices
    return fs.flower.run(app_of(server, client), nodes=3, devices=devices, **more)


def arrivals(grid, waiting, pause_s):
    found = []
    while waiting:
        replies = list(grid.pull_messages(waiting))
        waiting -= {reply.metadata.reply_to_message_id for reply in replies}
        found += [round(monotonic(), 9)] * len(replies)
        if pause_s:
            sleep(pause_s)
    return found


def test_polling_without_sleeping_lets_time_pass(app_of):
    seen = []
    run(app_of, lambda grid, context: seen.extend(arrivals(grid, set(grid.push_messages(messages(grid))), 0)))
    assert seen == [1.0, 2.0, 5.0]


def test_polling_with_sleeping_sees_replies_at_the_next_poll(app_of):
    seen = []
    run(app_of, lambda grid, context: seen.extend(arrivals(grid, set(grid.push_messages(messages(grid))), 0.75)))
    assert seen == [1.5, 2.25, 5.25]


def test_time_is_virtual_where_it_is_imported_by_name_and_everywhere_else(app_of):
    seen = []

    def server(grid, context):
        began = time.time(), time.perf_counter(), monotonic(), time.monotonic_ns()
        sleep(3600.0)
        time.sleep(60)
        seen.extend([time.time() - began[0], time.perf_counter() - began[1], monotonic() - began[2]])
        seen.append((time.monotonic_ns() - began[3]) / 1e9)

    run(app_of, server)
    assert seen == [3660.0] * 4


def test_a_timeout_returns_what_has_arrived_and_the_rest_is_late(app_of):
    seen = []

    def server(grid, context):
        seen.append(len(list(grid.send_and_receive(messages(grid), timeout=3.0))))
        seen.append(monotonic())
        sleep(10)

    result = run(app_of, server)
    assert seen == [2, 3.0]
    row = result.rounds.iloc[0]
    assert (row["arrived"], row["late"], row["dropped"], row["closed_s"]) == (2, 1, 0, 3.0)
    assert row["wasted_bits"] == row["uplink_bits"] / 3


def test_a_reply_that_is_pulled_after_a_timeout_has_arrived(app_of):
    def server(grid, context):
        waiting = set(grid.push_messages(messages(grid)))
        sleep(3.0)
        waiting -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(waiting)}
        arrivals(grid, waiting, 0)

    row = run(app_of, server).rounds.iloc[0]
    assert (row["arrived"], row["late"], row["closed_s"]) == (3, 0, 5.0)


def test_replies_come_in_the_order_of_arrival_and_ties_in_the_order_of_messages(app_of):
    orders = []

    def server(grid, context):
        nodes = list(grid.get_node_ids())
        replies = grid.send_and_receive(messages(grid, nodes[::-1]))
        orders.append([nodes.index(reply.metadata.src_node_id) for reply in replies])

    run(app_of, server)
    run(app_of, server, devices=fs.devices.constant(1.0))
    assert orders == [[0, 1, 2], [2, 1, 0]]


def test_a_clients_sleep_is_compute_time(app_of):
    def client(message, context):
        sleep(0.5)
        time.sleep(1.5)
        return content()

    visits = run(app_of, lambda grid, context: grid.send_and_receive(messages(grid)), client).visits
    assert (visits["compute"] - visits["download"]).tolist() == [3.0, 4.0, 7.0]


def test_a_node_handles_its_messages_one_after_another(app_of):
    def server(grid, context):
        node = list(grid.get_node_ids())[:1]
        arrivals(grid, set(grid.push_messages(messages(grid, node * 3))), 0)

    assert run(app_of, server).visits["end_s"].tolist() == [1.0, 2.0, 3.0]


def test_a_lost_visit_is_the_superlinks_error_reply(app_of):
    from flwr.common.constant import ErrorCode

    seen = []

    def server(grid, context):
        (reply,) = grid.send_and_receive(messages(grid, list(grid.get_node_ids())[:1]))
        seen.append((reply.error.code, monotonic()))

    result = run(app_of, server, devices=fs.devices.constant(4.0, dropout=1.0))
    lost_s = result.visits["end_s"].iloc[0]
    assert 0 < lost_s < 4.0
    assert seen == [(ErrorCode.NODE_UNAVAILABLE, lost_s + 60.0)]
    assert result.rounds[["arrived", "dropped"]].iloc[0].tolist() == [0, 1]


def test_an_expired_message_is_an_error_reply_and_its_visit_is_late(app_of):
    from flwr.common.constant import ErrorCode

    seen = []

    def server(grid, context):
        (reply,) = grid.send_and_receive(messages(grid, list(grid.get_node_ids())[:1], ttl=2.5))
        seen.append((reply.error.code, monotonic()))
        sleep(10)

    result = run(app_of, server, devices=fs.devices.constant(4.0))
    assert seen == [(ErrorCode.MESSAGE_UNAVAILABLE, 2.5)]
    assert result.rounds[["arrived", "late", "closed_s"]].iloc[0].tolist() == [0, 1, 2.5]


def test_only_nodes_that_are_online_are_listed_and_one_that_goes_offline_is_lost(app_of):
    seen = []
    online = fs.devices.intervals(starts=[0.0, 0.0, 5.0], ends=[10.0, 2.0, 100.0], offsets=[0, 1, 2, 3])

    def server(grid, context):
        nodes = list(grid.get_node_ids())
        seen.append(len(nodes))
        seen.append(sorted(reply.has_error() for reply in grid.send_and_receive(messages(grid, nodes))))
        sleep(6.0)

    result = run(app_of, server, devices=fs.devices.constant(3.0, availability=online))
    assert seen == [2, [False, True]]
    assert result.visits.sort_values("client")["end_s"].tolist() == [3.0, 2.0]


def test_a_message_to_a_node_that_is_offline_is_an_error_at_once(app_of):
    seen = []
    online = fs.devices.intervals(starts=[0.0, 0.0, 0.0], ends=[1.0, 100.0, 100.0], offsets=[0, 1, 2, 3])

    def server(grid, context):
        nodes = list(grid.get_node_ids())
        sleep(2.0)
        (reply,) = grid.send_and_receive(messages(grid, nodes[:1]))
        seen.append((reply.has_error(), monotonic()))

    run(app_of, server, devices=fs.devices.constant(3.0, availability=online))
    assert seen == [(True, 2.0)]


@pytest.mark.parametrize("how", ["polls", "sleeps", "sleeps and never pulls", "reads"])
def test_a_server_that_waits_for_ever_is_refused(app_of, how, monkeypatch):
    from fedsim.flower import grid as module

    monkeypatch.setattr(module, "MOST_IDLE", 100)
    monkeypatch.setattr(module, "MOST_READS", 1000)

    def server(grid, context):
        if how == "sleeps and never pulls":
            grid.push_messages(messages(grid))
        while True:
            if how == "polls":
                grid.pull_messages(["never sent"])
            elif how.startswith("sleeps"):
                sleep(1)
            else:
                monotonic()

    idle = "no reply is under way, and it has slept or polled 100 times in a row"
    why = "it reads the clock in a loop; call time.sleep in it" if how == "reads" else idle
    with pytest.raises(fs.errors.InvalidInput, match=f"the ServerApp waits for ever, or cannot be served: {why}"):
        run(app_of, server)


@pytest.mark.parametrize("call", ["get_node_ids", "send_and_receive"])
def test_a_second_thread_is_refused_also_where_the_app_swallows_its_error(app_of, call):
    def server(grid, context):
        def work():
            with contextlib.suppress(fs.errors.InvalidInput):
                grid.get_node_ids() if call == "get_node_ids" else grid.send_and_receive(sent)

        sent = messages(grid)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        grid.get_node_ids()

    with pytest.raises(fs.errors.InvalidInput, match="it calls the grid from a second thread"):
        run(app_of, server)


def test_replies_are_dated_in_virtual_time_and_expire_with_their_message(app_of):
    seen = []

    def server(grid, context):
        began_s = time.time()
        for reply in grid.send_and_receive(messages(grid, ttl=3.0)):
            about = reply.metadata
            seen.append((reply.has_error(), about.created_at - began_s, about.ttl))

    run(app_of, server)
    assert seen == [(False, 1.0, 2.0), (False, 2.0, 1.0), (True, 3.0, 0.0)]
