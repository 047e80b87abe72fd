"""Does compiled code give what the uncompiled code gives? Offline: what could go wrong on calls that were not recorded."""
