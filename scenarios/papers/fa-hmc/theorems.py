"""FA-HMC: theorems, and sentences without a figure."""
