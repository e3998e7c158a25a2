"""What is compared: encodings by name, put into a config, at sizes and lengths. Start at study.py.
"""
