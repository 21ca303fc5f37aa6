"""What results show: pictures and where the time went. Reads what runs left behind, never the engine."""
