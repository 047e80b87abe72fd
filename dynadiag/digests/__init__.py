"""What a process compiled, in short: made by the recorder as it goes, and by the reader of a log. Standard library only, Python 3.9 and up.

`texts` says what of a payload is compared, `process` turns records into events, `lines` is the file beside a log.
"""
