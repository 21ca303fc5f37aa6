"""Keep some nodes at work; mix in every reply when it comes."""

import random
from time import monotonic, sleep

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    theta, free, waiting, done = np.zeros(100), list(grid.get_node_ids()), set(), 0
    began = monotonic()
    while done < int(context.run_config["updates"]):
        while free and len(waiting) < int(context.run_config["concurrency"]):
            node = free.pop(random.randrange(len(free)))
            content = RecordDict({"arrays": ArrayRecord([theta])})
            waiting |= set(grid.push_messages([Message(content, node, "train")]))
        for reply in grid.pull_messages(waiting):
            waiting.discard(reply.metadata.reply_to_message_id)
            if reply.has_content():
                theta = 0.7 * theta + 0.3 * reply.content["arrays"].to_numpy_ndarrays()[0]
                free.append(reply.metadata.src_node_id)
            done += 1
        sleep(0.01)
    assert monotonic() > began
