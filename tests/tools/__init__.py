"""What tests work with: dying processes, files outside the repository, one clock for every run, CUDA on the host."""
