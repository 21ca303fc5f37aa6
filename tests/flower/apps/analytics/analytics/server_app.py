"""Ask a sample of the nodes; wait by polling."""

import random
import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    for round in range(int(context.run_config["rounds"])):
        nodes = random.sample(list(grid.get_node_ids()), 4)
        query = RecordDict({"query": ConfigRecord({"bins": int(context.run_config["bins"])})})
        waiting = set(grid.push_messages([Message(query, node, "query", group_id=str(round + 1)) for node in nodes]))
        while waiting:
            time.sleep(0.5)
            waiting -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(waiting)}
