"""QLSD: theorems, and sentences without a figure."""
