"""Where jobs really run: `inline` on this process's threads, `ray` on client hosts. Real time lives here only."""
