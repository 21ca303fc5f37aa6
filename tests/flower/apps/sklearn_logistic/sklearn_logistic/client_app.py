"""A few passes of scikit-learn's stochastic gradient descent, from the server's coefficients."""

import warnings

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

app = ClientApp()
FEATURES = 6


def load(context: Context) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    x = rng.normal(size=(50, FEATURES))
    return x, (x.sum(axis=1) + 0.3 * rng.normal(size=50) > 0).astype(int)


def model(message: Message, context: Context) -> SGDClassifier:
    found = SGDClassifier(
        loss="log_loss", penalty=str(context.run_config["penalty"]), learning_rate="constant", eta0=0.1
    )
    found.classes_ = np.array([0, 1])
    found.coef_, found.intercept_ = message.content["arrays"].to_numpy_ndarrays()
    return found


@app.train()
def train(message: Message, context: Context) -> Message:
    (x, y), found = load(context), model(message, context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(int(context.run_config["local-epochs"])):
            found.partial_fit(x, y, classes=[0, 1])
    metrics = MetricRecord({"num-examples": len(x), "train_loss": float(log_loss(y, found.predict_proba(x)))})
    arrays = ArrayRecord([found.coef_, found.intercept_])
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    (x, y), found = load(context), model(message, context)
    metrics = MetricRecord({"num-examples": len(x), "accuracy": float(found.score(x, y))})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
