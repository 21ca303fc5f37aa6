"""Private FedPAQ: theorems, and sentences without a figure."""
