"""Pictures from results; reads what runs left behind, never the engine."""
