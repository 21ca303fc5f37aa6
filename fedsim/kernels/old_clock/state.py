"""The columns of the compiled clock, and the numbers that name its choices. No Numba here."""

from __future__ import annotations

import numpy as np

NOT, BEFORE, COMPUTE, UPLOAD = range(4)  # where a visit drops out
DOWNLOADED, COMPUTED, ARRIVES, BREAKS, LOST, GOES_OFF, RINGS, COMES_ON, BEGINS, COPIES, PLANS, ENDS, STOPS = range(13)
PROGRESS, LAST = 0, 1 << 60  # priorities at one instant: arrivals come in between, in a drawn order
DONE, ROOM, GONE, REFER = range(4)  # why the loop returned: rounds made; arrays full; nobody comes; ask the reference
NOTES = ("select", "download", "compute", "upload", "drop", "cut", "late", "aggregate")
SELECT, DOWNLOAD, COMPUTED_, UPLOADED, DROP, CUT, LATE, AGGREGATE = range(len(NOTES))

COLUMNS = (
    "events", "visits", "clients", "places", "ended", "rounds", "notes", "intervals", "chosen", "times", "waiting",
    "flows", "nodes", "finishes", "routes", "route_links", "links", "bundles", "users", "more", "privates", "table",
    "starting", "dirty", "group", "due", "done", "hops", "lists",
    "headers", "sites", "messages", "outgoing", "mixed", "site_rows", "message_rows",  # see `gossip_state`
    "edges", "members", "asked", "sites_of",  # see `tiers_state`
)  # fmt: skip
STATE = np.dtype([
    # --- what never changes
    ("low", "u4"), ("high", "u4"), ("replica", "i8"), ("population", "i8"), ("limit", "f8"),
    ("selects", "i8"), ("draws", "i8"), ("closes", "i8"), ("replies", "i8"), ("seconds", "f8"), ("at_least", "i8"),
    ("down_bits", "i8"), ("first_bits", "i8"), ("later_bits", "i8"),
    ("slowdown", "i8"), ("slow_a", "f8"), ("slow_b", "f8"), ("timed", "i8"), ("drops", "i8"), ("presence", "i8"),
    ("shared", "i8"), ("copies", "i8"), ("reaches", "i8"), ("remembers", "i8"), ("asynchronous", "i8"),
    ("traced", "i8"), ("places", "i8"),
    # --- where its columns begin, and how long they are
    *((f"at_{name}", "i8") for name in COLUMNS), *((f"room_{name}", "i8") for name in COLUMNS),
    # --- the clock
    ("now", "f8"), ("events", "i8"), ("numbered", "i8"), ("refer", "i8"),
    # --- the round, or the version
    ("round", "i8"), ("until", "i8"), ("open", "i8"), ("opened", "f8"), ("selected", "i8"), ("in_flight", "i8"),
    ("arrived", "i8"), ("serial", "i8"), ("copied", "i8"), ("came_down", "i8"), ("lost", "i8"),
    ("unanswered", "i8"), ("waiting", "i8"), ("free", "i8"), ("begun_notes", "i8"),
    # --- what was written
    ("rows", "i8"), ("rounds", "i8"), ("notes", "i8"),
    # --- flows
    ("flow_now", "f8"), ("flow_events", "i8"), ("flow_serial", "i8"), ("started", "i8"), ("instant", "i8"),
    ("starting", "i8"), ("dirty", "i8"), ("moved", "i8"), ("planned", "i8"), ("settling", "i8"), ("bundles", "i8"),
    ("hops", "i8"), ("privates", "i8"), ("flows", "i8"), ("flow_free", "i8"), ("flow_top", "i8"),
    ("nodes", "i8"), ("node_free", "i8"), ("node_top", "i8"), ("coming", "i8"),
    # --- several sites: rounds that have headers, from the first to the last, and the first that can never be opened
    ("begun", "i8"), ("base", "i8"), ("newest", "i8"), ("hopeless", "i8"), ("hopeless_s", "f8"),
    # --- gossip: replies that are enough, the most neighbours of a site, mixings used in turn (0: drawn); messages
    # under way, and places they have ever taken
    ("enough", "f8"), ("degree", "i8"), ("tables", "i8"), ("under_way", "i8"), ("slots", "i8"),
    # --- tiers: rounds between two merges, bits to the cloud and back, the first round that some edge has not closed
    ("every", "i8"), ("to_cloud", "i8"), ("from_cloud", "i8"), ("first", "i8"),
])  # fmt: skip

CLIENT = np.dtype([
    ("latency_down", "f8"), ("stretch_down", "f8"), ("bandwidth_down", "f8"), ("route_down", "i8"),
    ("latency_up", "f8"), ("stretch_up", "f8"), ("bandwidth_up", "f8"), ("route_up", "i8"),
    ("work_s", "f8"), ("wake_s", "f8"), ("before", "f8"), ("compute", "f8"), ("upload", "f8"),
    ("coin", "f8"), ("weight", "f8"),
    ("presence_a", "f8"), ("presence_b", "f8"), ("period", "f8"), ("begin", "i8"), ("end", "i8"),
])  # fmt: skip

PLACE = np.dtype([  # of a client, where the clock has to know
    ("slot", "i8"), ("visits", "i8"), ("heard", "i8"),  # its visit, how often it set out, the last version it answered
    ("until", "f8"), ("until_slot", "i8"), ("until_serial", "i8"),  # when it goes off, and its latest visit
])  # fmt: skip

VISIT = np.dtype([
    ("client", "i8"), ("serial", "i8"), ("times", "i8"), ("compute_s", "f8"), ("fraction", "f8"), ("rank", "i8"),
    ("phase", "i1"), ("over", "i1"), ("arrived", "i1"), ("late", "i1"), ("downloaded", "i1"), ("uploading", "i1"),
    ("through", "i1"), ("bits", "i8"), ("sent", "i8"), ("came_down", "i8"), ("sending", "i8"),
    ("started_s", "f8"), ("ends_s", "f8"), ("sending_s", "f8"), ("flow", "i8"), ("version", "i8"), ("number", "i8"),
])  # fmt: skip

EVENT = np.dtype(
    [("time", "f8"), ("priority", "i8"), ("number", "i8"), ("kind", "i8"), ("slot", "i8"), ("serial", "i8")]
)

ENDED = np.dtype([  # a row that `fedsim.old_engine.round.Ended` is made of
    ("client", "i8"), ("times", "i8"), ("arrived", "?"), ("late", "?"), ("uploading", "?"), ("sent", "i8"),
    ("came_down", "i8"), ("spent_s", "f8"), ("version", "i8"), ("number", "i8"),
])  # fmt: skip

ROUND = np.dtype([
    ("opened", "f8"), ("closed", "f8"), ("selected", "i8"), ("copied", "i8"), ("came_down", "i8"), ("end", "i8"),
    ("begun_notes", "i8"), ("end_notes", "i8"),
])  # fmt: skip

INTERVAL = np.dtype([("start", "f8"), ("end", "f8")])
NUMBER, SHORT = np.dtype([("it", "i8")]), np.dtype([("it", "u4")])
NOTE = np.dtype([("time", "f8"), ("client", "i8"), ("what", "i8"), ("bits", "i8"), ("round", "i8")])

FLOW = np.dtype([  # a message on shared links; a dead one waits for its node to be taken off its bundle's heap
    ("number", "i8"), ("bundle", "i8"), ("mark", "f8"), ("bits", "f8"), ("route", "i8"), ("node", "i8"),
    ("slot", "i8"), ("kind", "i8"), ("priority", "i8"), ("next", "i8"), ("alive", "i1"), ("entered", "i1"),
])  # fmt: skip
NODE = np.dtype([("mark", "f8"), ("number", "i8"), ("flow", "i8"), ("child", "i8"), ("sibling", "i8")])
FINISH = np.dtype([("end", "f8"), ("bundle", "i8"), ("stamp", "i8")])
ROUTE = np.dtype([("begin", "i8"), ("end", "i8"), ("known", "i1"), ("bundle", "i8"), ("moved", "i1")])
USER = np.dtype([("users", "i8"), ("first", "i8"), ("seen", "i8")])  # of a link: routes known, the first, latest search
MORE = np.dtype([("root", "i8"), ("private", "i8"), ("privates", "i8"), ("hash", "i8"), ("dirty", "i1")])  # of a bundle
