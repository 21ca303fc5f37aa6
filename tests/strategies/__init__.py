"""What tests are given: drawn scenarios, hostile values, small files, data and results."""
