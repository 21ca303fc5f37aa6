"""Execution of jobs in real time: `inline` on this process's threads, `ray` on client hosts."""
