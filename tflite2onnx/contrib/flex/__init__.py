"""TensorFlow (Flex) operators: rules for those that TFLite has, classes for those that it lacks."""
