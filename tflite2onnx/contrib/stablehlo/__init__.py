"""StableHLO's operators: windows, gather and scatter, and passes that make TFLite operators."""
