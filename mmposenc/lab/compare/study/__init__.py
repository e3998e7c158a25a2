"""What is compared, for how long and by which metric. Start at study.py."""
