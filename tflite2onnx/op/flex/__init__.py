"""TensorFlow operators that TFLite lacks, one module for each kind."""
