"""Which position encoding for a data set: trainings that differ in the encoding alone."""
