"""The command line: flags to records (`config.py`), commands to the modules that run them."""
