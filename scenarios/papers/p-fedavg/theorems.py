"""P-FedAvg: theorems, and sentences without a figure."""
